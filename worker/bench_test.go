package worker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
)

// BenchmarkProxy compares the shim with a bare httputil.ReverseProxy before the same engine, 16 clients at once.
func BenchmarkProxy(b *testing.B) {
	chunk := "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":7,\"total_tokens\":8,\"completion_tokens\":1}}\n\n"
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}`)
			return
		}
		sse(w)
		for range 100 {
			sse(w, chunk)
		}
		sse(w, "data: [DONE]\n\n")
	}))
	defer engine.Close()
	base, _ := url.Parse(engine.URL)

	bare := httputil.NewSingleHostReverseProxy(base)
	bare.FlushInterval, bare.Transport = -1, newTransport(nil)
	bareServer := httptest.NewServer(bare)
	defer bareServer.Close()

	w, err := New(Config{Name: "w", Endpoint: "large", Listen: "127.0.0.1:0", Doors: []string{"127.0.0.1:1"}, JoinToken: "t",
		Engine: &fakeEngine{base: base, transport: newTransport(nil), ran: make(chan struct{})}, Journal: discard{}, Log: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	minter := identity.NewMinter("d")
	_ = w.keys.hold("d", minter.PublicKey())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() { stop(); <-done }()

	const chat = `{"model":"m","messages":[{"role":"user","content":%q}],"stream":%v}`
	for _, c := range []struct{ name, body string }{
		{"1KB", fmt.Sprintf(chat, strings.Repeat("word ", 190), false)},
		{"330KB", fmt.Sprintf(chat, strings.Repeat("word ", 66_000), false)},
		{"stream100", fmt.Sprintf(chat, strings.Repeat("word ", 190), true)},
	} {
		b.Run(c.name+"/bare", func(b *testing.B) { load(b, bareServer.URL, c.body, nil) })
		b.Run(c.name+"/shim", func(b *testing.B) { load(b, "http://"+w.Addr(), c.body, minter) })
	}
}

func load(b *testing.B, base, body string, minter *identity.Minter) {
	client := &http.Client{Transport: newTransport(nil)}
	defer client.CloseIdleConnections()
	tokens := make(chan string, b.N)
	now := time.Now()
	for i := range b.N { // minting is the door's work
		if minter == nil {
			tokens <- ""
			continue
		}
		tokens <- minter.Mint(identity.Context{Admission: fmt.Sprint(b.N, "-", i, "-", now.UnixNano()), Model: "m", Endpoint: "large"}, now)
	}
	b.SetParallelism(8)
	b.ReportAllocs()
	b.ResetTimer()
	began := cpu()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			q, _ := http.NewRequest("POST", base+"/v1/chat/completions", strings.NewReader(body))
			q.Header.Set("Content-Type", "application/json")
			q.Header.Set("X-Spokegate-Context", <-tokens)
			resp, err := client.Do(q)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
				b.Errorf("%d %v", resp.StatusCode, err)
			}
			resp.Body.Close()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(cpu()-began)/float64(b.N), "cpu-ns/op") // of client, proxy and engine
}

// cpu is what this process has used so far. It tells more than the time where others use the machine too.
func cpu() int64 {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return r.Utime.Nano() + r.Stime.Nano()
}

// BenchmarkStrip is what one streamed chunk costs beyond being copied: cutting, taking usage out, metering, and the note behind it.
func BenchmarkStrip(b *testing.B) {
	var chunks [][]byte // as real ones, each counts one more
	for n := range 1000 {
		chunks = append(chunks, fmt.Appendf(nil, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":7,\"total_tokens\":8,\"completion_tokens\":%d}}\n\n", n))
	}
	e := &events{to: newNotes(openai.Chat, &stripper{})}
	var out []byte
	b.SetBytes(int64(len(chunks[0])))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		out = e.write(out[:0], chunks[n%len(chunks)])
		n++
	}
	if !bytes.Contains(out, []byte(noteMark)) {
		b.Fatalf("%s", out)
	}
}
