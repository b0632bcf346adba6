package worker

import (
	"fmt"
	"strings"
)

// hostile is an engine's answer, and what must become of it.
type hostile struct {
	name, answer string
	reset        bool
	linger       bool // then it hangs
	status       int
	body         string // exactly; or
	code         string
	outcome      string
	completion   any
}

func hostileEngines() []hostile {
	const (
		stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
		enc    = "Transfer-Encoding: chunked\r\n\r\n"
		object = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
		event  = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
		whole  = `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}`
		cut    = "data: {\"error\":{\"message\":\"The engine broke off; the answer is not whole.\",\"type\":\"server_error\",\"param\":null,\"code\":\"upstream_cut\"}}\n\n"
	)
	const (
		done   = "data: [DONE]\n\n"
		failed = "data: {\"error\":{\"message\":\"x\"}}\n\n"
	)
	counted := func(prompt, completion int) string {
		return fmt.Sprintf("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\n", prompt, completion)
	}
	huge := "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 2*maxEvent) + "\"}}]}\n\n"
	large := `{"data":"` + strings.Repeat("x", 2*maxWhole) + `"`
	return []hostile{
		{name: "nothing", status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "reset at once", reset: true, status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "not HTTP", answer: "SSH-2.0-x\r\n", status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "half an event", answer: stream + enc + chunked(event, "data: {\"choi"), status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "half an event, then a proper end", answer: stream + enc + chunked(event, "data: {\"choi", ""), status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "half of the first event", answer: stream + enc + chunked("data: {\"choi"), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "no events at all", answer: stream + enc + chunked(""), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "reset mid-stream", answer: stream + enc + chunked(event), reset: true, status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "cut after the end", answer: stream + enc + chunked(event, "data: [DONE]\n\n"), status: 200, body: event + "data: [DONE]\n\n", outcome: complete, completion: 1},
		{name: "no terminal event", answer: stream + enc + chunked(event, ""), status: 200, body: event, outcome: complete, completion: 1},
		{name: "no terminal event and no framing", answer: stream + "\r\n" + event, status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "stream shorter than said", answer: stream + "Content-Length: 1000\r\n\r\n" + event, status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "stream longer than said", answer: stream + "Content-Length: 55\r\n\r\n" + event + event, status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "bad chunk", answer: stream + enc + chunked(event) + "zz\r\n", status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "error event, then nothing", answer: stream + enc + chunked(event, "data: {\"error\":{\"message\":\"x\"}}\n\n"), status: 200, body: event + "data: {\"error\":{\"message\":\"x\"}}\n\n", outcome: upstreamError, completion: 1},
		{name: "large event cut", answer: stream + enc + chunked("data: "+strings.Repeat("x", maxEvent+10)), status: 200, body: "data: " + strings.Repeat("x", maxEvent+10) + "\n\n" + cut, outcome: upstreamCut},
		{name: "JSON shorter than said", answer: object + "Content-Length: 1000\r\n\r\n" + whole[:40], status: 503, code: "upstream_cut", outcome: upstreamCut, completion: nil},
		{name: "whole JSON, shorter than said", answer: object + "Content-Length: 1000\r\n\r\n" + whole, status: 200, body: whole, outcome: complete, completion: 3},
		{name: "JSON longer than said", answer: object + "Content-Length: 20\r\n\r\n" + whole, status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "JSON half", answer: object + enc + chunked(whole[:20], ""), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "JSON for a stream", answer: object + enc + chunked(whole, ""), status: 200, body: whole, outcome: complete, completion: 3},
		{name: "JSON without its type", answer: "HTTP/1.1 200 OK\r\n\r\n" + whole, status: 200, body: whole, outcome: complete, completion: 3},
		{name: "HTML", answer: "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<h1>hi</h1>", status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "500 in HTML", answer: "HTTP/1.1 500 Oh\r\nContent-Type: text/html\r\n\r\n<h1>hi</h1>", status: 500, code: "upstream_error", outcome: upstreamError},
		{name: "500 without a body", answer: "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", status: 500, code: "upstream_error", outcome: upstreamError},
		{name: "400 in JSON", answer: "HTTP/1.1 400 No\r\nContent-Type: application/json\r\n\r\n{\"error\":{\"message\":\"long\",\"code\":400}}", status: 400, body: "{\"error\":{\"message\":\"long\",\"code\":400}}", outcome: upstreamError},
		{name: "401 of our own access", answer: "HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\n{}", status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "redirect", answer: "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "gzip nobody asked for", answer: stream + "Content-Encoding: gzip\r\n" + enc + chunked(zipped(event+"data: [DONE]\n\n"), ""), status: 200, body: event + "data: [DONE]\n\n", outcome: complete, completion: 1},
		{name: "gzip cut", answer: object + "Content-Encoding: gzip\r\n" + enc + chunked(zipped(whole)[:30], ""), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "gzip that is none", answer: object + "Content-Encoding: gzip\r\n" + enc + chunked(whole, ""), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "brotli nobody asked for", answer: object + "Content-Encoding: br\r\n" + enc + chunked("xxxx", ""), status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "large JSON", answer: object + enc + chunked(large+"}", ""), status: 200, body: large + "}", outcome: complete},
		{name: "large JSON in gzip", answer: object + "Content-Encoding: gzip\r\n" + enc + chunked(zipped(large+"}"), ""), status: 200, body: large + "}", outcome: complete},
		{name: "endless headers", answer: "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 100), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "a header without an end", answer: "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 100<<10), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "a header that is none", answer: "HTTP/1.1 200 OK\r\nX A\r\n\r\n" + whole, status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "two lengths", answer: object + "Content-Length: 20\r\nContent-Length: 30\r\n\r\n" + whole, status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "a length below zero", answer: object + "Content-Length: -1\r\n\r\n" + whole, status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "a length and chunks", answer: object + "Content-Length: 3\r\n" + enc + chunked(whole, ""), status: 200, body: whole, outcome: complete, completion: 3},
		{name: "hints before", answer: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + stream + enc + chunked(event, done, ""), status: 200, body: event + done, outcome: complete, completion: 1},
		{name: "hints without an end", answer: strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("x", 1000)+"\r\n\r\n", 100), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "another protocol", answer: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", linger: true, status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "trailers", answer: stream + "Trailer: X-T\r\n" + enc + chunked(event, done) + "0\r\nX-T: 1\r\nX-U: 2\r\n\r\n", status: 200, body: event + done, outcome: complete, completion: 1},
		{name: "trailers without an end", answer: stream + enc + chunked(event, done) + "0\r\n" + strings.Repeat("X-T: 1\r\n", 100), status: 200, body: event + done, outcome: complete, completion: 1},
		{name: "chunk larger than said", answer: stream + enc + "5\r\n" + event + "\r\n0\r\n\r\n", status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "chunk of a size beyond all", answer: stream + enc + "fffffffffffffffff\r\n" + event, status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "NULs in a stream", answer: stream + enc + chunked("\x00\x00", event, "data: \x00\n\n", done, ""), status: 200, body: "\x00\x00" + event + "data: \x00\n\n" + done, outcome: complete},
		{name: "a stream that is not UTF-8", answer: stream + enc + chunked("data: {\"choices\":[{\"delta\":{\"content\":\"\xff\xc3\"}}]}\n\n", done, ""), status: 200,
			body: "data: {\"choices\":[{\"delta\":{\"content\":\"\xff\xc3\"}}]}\n\n" + done, outcome: complete, completion: 1},
		{name: "JSON that is not UTF-8", answer: object + enc + chunked("{\"x\":\"\xff\","+whole[1:], ""), status: 200, body: "{\"x\":\"\xff\"," + whole[1:], outcome: complete, completion: 3},
		{name: "a large event", answer: stream + enc + chunked(huge, done, ""), status: 200, body: huge + done, outcome: complete, completion: 1},
		{name: "an event a byte at a time", answer: stream + enc + chunked(strings.Split(event+done, "")...) + chunked(""), status: 200, body: event + done, outcome: complete, completion: 1},
		{name: "an error event, and on", answer: stream + enc + chunked(event, failed, event, done, ""), status: 200, body: event + failed + event + done, outcome: upstreamError, completion: 2},
		{name: "two usages in a stream", answer: stream + enc + chunked(event, counted(7, 3), counted(7, 5), done, ""), status: 200,
			body: event + done, outcome: complete, completion: 5},
		{name: "usage that falls", answer: stream + enc + chunked(event, counted(7, 5), counted(7, 3), done, ""), status: 200,
			body: event + done, outcome: complete, completion: 3},
		{name: "usage after the end", answer: stream + enc + chunked(event, counted(7, 3), done, counted(7, 100), ""), status: 200,
			body: event + done, outcome: complete, completion: 100},
		{name: "two usages in JSON", answer: object + enc + chunked(`{"choices":[],"usage":{"completion_tokens":1},"usage":{"prompt_tokens":7,"completion_tokens":3}}`, ""), status: 200,
			body: `{"choices":[],"usage":{"completion_tokens":1},"usage":{"prompt_tokens":7,"completion_tokens":3}}`, outcome: complete, completion: 3},
		{name: "usage below zero", answer: object + enc + chunked(`{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":-3}}`, ""), status: 200,
			body: `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":-3}}`, outcome: complete},
		{name: "204 with a body", answer: "HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n{}", status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "304 with a body", answer: "HTTP/1.1 304 No\r\nContent-Length: 2\r\n\r\n{}", status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "a part of the answer", answer: "HTTP/1.1 206 Part\r\nContent-Length: 2\r\n\r\n{}", status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "200 without a body", answer: object + "Content-Length: 0\r\n\r\n", status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "999", answer: "HTTP/1.1 999 Oh\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "a status that is none", answer: "HTTP/1.1 20 OK\r\n\r\n" + whole, status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "500 as a stream", answer: "HTTP/1.1 500 Oh\r\nContent-Type: text/event-stream\r\n" + enc + chunked(failed, ""), status: 500, code: "upstream_error", outcome: upstreamError},
		{name: "500 that hangs", answer: "HTTP/1.1 500 Oh\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", linger: true, status: 500, code: "upstream_error", outcome: upstreamError},
		{name: "redirect that hangs", answer: "HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 100\r\n\r\n", linger: true, status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "large JSON cut", answer: object + enc + chunked(large), status: 200, body: "broken", outcome: upstreamCut},
	}
}
