package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// request is a prepared one, without its last header and the empty line.
type request struct{ head, body []byte }

// different bodies share a long prefix and differ at the end, as turns of one conversation do.
const different = 64

// requests of about size bytes.
func requests(key string, size int, stream bool) []request {
	text := words(size - 200)
	out := make([]request, different)
	for i := range out {
		content, _ := json.Marshal(fmt.Sprintf("%s %08d", text, i))
		options := `"temperature":0`
		if stream {
			options = `"stream":true,"stream_options":{"include_usage":true}`
		}
		out[i].body = fmt.Appendf(nil, `{"model":"bench",%s,"messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":%s}],"max_tokens":256}`,
			options, content)
		out[i].head = fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n",
			key, len(out[i].body))
	}
	return out
}

// words are like code: short, with quotes and line ends among them, so that a JSON reader has escapes to undo.
func words(size int) string {
	r := rand.New(rand.NewPCG(7, 7))
	vocabulary := []string{`"`, "\n", "\n\t", "{", "}", "é"}
	for range 200 {
		b := make([]byte, 2+r.IntN(8))
		for i := range b {
			b[i] = "etaoinshrdlucm"[r.IntN(14)]
		}
		vocabulary = append(vocabulary, string(b))
	}
	var s strings.Builder
	for s.Len() < size {
		s.WriteString(vocabulary[r.IntN(len(vocabulary))])
		s.WriteByte(' ')
	}
	return s.String()
}
