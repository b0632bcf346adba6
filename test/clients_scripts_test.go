package test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"
)

// Events of a stream, as an engine sends them.
const (
	saysA      = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}]}` + "\n\n"
	saysB      = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":null}]}` + "\n\n"
	saysUsage  = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":%d,"total_tokens":0}}` + "\n\n"
	saysError  = `data: {"error":{"message":"The prompt is too long.","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}` + "\n\n"
	saysDone   = "data: [DONE]\n\n"
	beginsText = `event: message_start` + "\n" +
		`data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":0}}}` + "\n\n" +
		`event: content_block_start` + "\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n"
	saysText = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":%s}}\n\n"
	endsText = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":%d}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	overloadedText = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
)

// scriptEngine sets what the engine does to the clients of one script.
func scriptEngine(e *engine, cases string) {
	e.answers(cases+"first-503", firstRefused())
	e.answers(cases+"429", quotaUsedUp)
	e.answers(cases+"echo", echo)
	e.answers(cases+"messages-echo", echoMessage)
	e.answers(cases+"digest", digest)
	ab := []string{saysA, saysB}
	e.plays(cases+"error-event", script{chunks: append(ab[:2:2], saysError)})
	e.plays(cases+"dies", script{chunks: ab, end: "server_reset"})
	e.plays(cases+"done", script{chunks: append(ab[:2:2], fmt.Sprintf(saysUsage, 2), saysDone), end: "client"})
	e.plays(cases+"stalls", script{chunks: ab, end: "client"})
	text := []string{beginsText, fmt.Sprintf(saysText, `"a"`), fmt.Sprintf(saysText, `"b"`)}
	e.plays(cases+"messages-error", script{chunks: append(text[:3:3], overloadedText)})
	e.plays(cases+"messages-dies", script{chunks: text, end: "server_reset"})
}

// firstRefused answers 503 to all attempts of the first request, and serves the others.
func firstRefused() http.HandlerFunc {
	var mu sync.Mutex
	first := ""
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if first == "" {
			first = r.Header.Get("X-Request-Id")
		}
		refused := first == r.Header.Get("X-Request-Id")
		mu.Unlock()
		if refused {
			script{status: http.StatusServiceUnavailable, json: `{"error":{"message":"warming up","type":"server_error","code":"warming_up"}}`}.playJSON(w, r)
			return
		}
		script{}.playJSON(w, r)
	}
}

// quotaUsedUp is final: the client is told not to come again.
func quotaUsedUp(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Should-Retry", "false")
	script{status: http.StatusTooManyRequests, json: `{"error":{"message":"used up","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`}.playJSON(w, r)
}

// digest answers with the SHA-256 of the body that it received.
func digest(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	_, _ = io.Copy(h, r.Body)
	script{json: strings.Replace(plainAnswer, `"hi"`, `"`+hex.EncodeToString(h.Sum(nil))+`"`, 1)}.playJSON(w, r)
}

// asked is the last message of a request, and whether it is to be streamed.
func asked(r *http.Request) (text string, stream bool) {
	var q struct {
		Stream   bool
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Messages) == 0 {
		return "", false
	}
	return q.Messages[len(q.Messages)-1].Content, q.Stream
}

// quoted is a JSON string that escapes only what it must.
func quoted(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // of a string
	return strings.TrimSpace(b.String())
}

// echo says what it was asked: whole, or a character a chunk.
func echo(w http.ResponseWriter, r *http.Request) {
	text, stream := asked(r)
	if !stream {
		script{json: strings.Replace(plainAnswer, `"hi"`, quoted(text), 1)}.playJSON(w, r)
		return
	}
	var b strings.Builder
	for _, c := range text {
		b.WriteString(strings.Replace(saysB, `"b"`, quoted(string(c)), 1))
	}
	fmt.Fprintf(&b, saysUsage, utf8.RuneCountInString(text))
	inPieces(w, r, b.String()+saysDone)
}

func echoMessage(w http.ResponseWriter, r *http.Request) {
	text, _ := asked(r)
	var b strings.Builder
	for _, c := range text {
		fmt.Fprintf(&b, saysText, quoted(string(c)))
	}
	inPieces(w, r, beginsText+b.String()+fmt.Sprintf(endsText, utf8.RuneCountInString(text)))
}

// inPieces cuts a stream without regard to events and characters.
func inPieces(w http.ResponseWriter, r *http.Request, text string) {
	var chunks []string
	for len(text) > 0 {
		n := min(len(text), 37)
		chunks = append(chunks, text[:n])
		text = text[n:]
	}
	script{chunks: chunks}.playStream(w, r)
}
