package openai

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// chatBody is a plausible chat request of about size bytes.
func chatBody(size int, text string) []byte {
	body := []byte(`{"model":"sim-large","messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":`)
	text = strings.Repeat(text, size/len(text)+1)
	quoted, _ := json.Marshal(text[:max(size-len(body)-60, 1)])
	body = append(body, bytes.ToValidUTF8(quoted, nil)...)
	return append(body, `}],"temperature":0.7,"stream":true,"max_tokens":256}`...)
}

func benchScan(b *testing.B, body []byte) {
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Scan(Chat, body); err != nil {
			b.Fatal(err)
		}
	}
}

const english = "The quick brown fox jumps over the lazy dog, \"twice\", and then sleeps until noon.\n"

func BenchmarkScan1K(b *testing.B)   { benchScan(b, chatBody(1<<10, english)) }
func BenchmarkScan330K(b *testing.B) { benchScan(b, chatBody(330<<10, english)) }
func BenchmarkScan330KWide(b *testing.B) {
	benchScan(b, chatBody(330<<10, "网关在门口计数，然后让请求通过。"))
}
func BenchmarkScan330KNumbers(b *testing.B) {
	body := []byte(`{"model":"m","prompt":[1` + strings.Repeat(",51234", 55<<10) + `]}`)
	benchScan(b, body)
}

// A chunk as vLLM streams it with running usage.
const chunk = `data: {"id":"chatcmpl-8f1d2c3b4a5968778695a4b3c2d1e0f0","object":"chat.completion.chunk","created":1767225600,"model":"sim-large",` +
	`"choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null,"token_ids":null}],` +
	`"usage":{"prompt_tokens":812,"total_tokens":850,"completion_tokens":38}}` + "\n\n"

func BenchmarkMeterChunk(b *testing.B) {
	m := NewMeter(Chat, true)
	p := []byte(chunk)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		m.Write(p)
	}
	m.Write([]byte(done))
	if r := m.Close(); *r.Usage.Completion != 38 {
		b.Fatal(r)
	}
}

func BenchmarkMeterJSON330K(b *testing.B) {
	body := chatBody(330<<10, english)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		m := NewMeter(Chat, false)
		m.Write(body)
		if !m.Close().Terminal {
			b.Fatal("not read whole")
		}
	}
}

func BenchmarkDecodeGzip330K(b *testing.B) { benchDecode(b, "gzip", gzipped(b, prose(330<<10))) }
func BenchmarkDecodeZstd330K(b *testing.B) { benchDecode(b, "zstd", zstandard(b, prose(330<<10))) }

// prose is text that packs about as well as real one: to a third.
func prose(size int) string {
	rng := rand.New(rand.NewPCG(7, 8))
	words := strings.Fields(english)
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(words[rng.IntN(len(words))] + " " + strconv.Itoa(rng.IntN(100)))
	}
	return b.String()
}

func benchDecode(b *testing.B, encoding, body string) {
	b.SetBytes(330 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeBody(encoding, []byte(body), 32<<20); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReport(b *testing.B) {
	m := NewMeter(Chat, true)
	m.Write([]byte(chunk))
	b.ReportAllocs()
	for b.Loop() {
		_ = m.Report()
	}
}

func BenchmarkAppendNote(b *testing.B) {
	m := NewMeter(Chat, true)
	m.Write([]byte(chunk))
	var note []byte
	b.ReportAllocs()
	for b.Loop() {
		note = m.AppendNote(note[:0])
	}
}

func BenchmarkReadNote(b *testing.B) {
	note := []byte(`{"prompt_tokens":812,"cached_tokens":800,"completion_tokens":38,"terminal":true,"bytes":2048}`)
	b.ReportAllocs()
	for b.Loop() {
		if r, size := ReadNote(Chat, note); size != 2048 || *r.Usage.Prompt != 812 {
			b.Fatal(r)
		}
	}
}
