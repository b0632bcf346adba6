package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// engine answers OpenAI requests with canned bytes, so that what it costs hides little of what is measured. Whether an
// answer is a stream the first bytes of the request say: see bodies.
type engine struct {
	lis    net.Listener
	whole  []byte
	chunks atomic.Int64 // of a stream
	pace   atomic.Int64 // nanoseconds before each chunk; 0: none
	hold   atomic.Pointer[chan struct{}]
}

// stampMark begins the time of writing in a chunk: nanoseconds since began, 19 digits.
const stampMark = "t=0x"

const stampDigits = 19

// began is where both ends of a stamp count from: they live in this process, so one monotonic clock serves.
var began = time.Now()

func newEngine() (*engine, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	answer := `{"id":"chatcmpl-bench","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("tok ", 20) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":300,"completion_tokens":20,"total_tokens":320}}`
	e := &engine{lis: lis, whole: response("application/json", answer)}
	e.chunks.Store(100)
	go e.accept()
	return e, nil
}

func response(media, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", media, len(body), body)
}

func (e *engine) url() string { return "http://" + e.lis.Addr().String() }

func (e *engine) accept() {
	for {
		c, err := e.lis.Accept()
		if err != nil {
			return
		}
		go e.serve(c)
	}
}

// serve answers request after request. Whatever is wrong ends the connection, which the client sees.
func (e *engine) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 64<<10)
	stream := newStream()
	for {
		get, length, err := readHead(r)
		if err != nil {
			return
		}
		start, _ := r.Peek(min(length, 64))
		streamed := bytes.Contains(start, []byte(`"stream":true`))
		if _, err = r.Discard(length); err != nil {
			return
		}
		switch {
		case get:
			_, err = c.Write(response("application/json", `{"object":"list","data":[{"id":"bench"}]}`))
		case streamed:
			err = e.stream(c, stream)
		default:
			_, err = c.Write(e.whole)
		}
		if err != nil {
			return
		}
	}
}

// readHead reads up to the empty line.
func readHead(r *bufio.Reader) (get bool, length int, err error) {
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return get, 0, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			return get, length, nil
		}
		if first {
			get = bytes.HasPrefix(line, []byte("GET "))
		} else if name, value, _ := bytes.Cut(line, []byte(":")); bytes.EqualFold(name, []byte("content-length")) {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
}

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// stream is a connection's own copy of the canned chunk, in which the time of writing is filled in.
type stream struct {
	chunk []byte
	stamp []byte // part of chunk
	end   []byte
}

func newStream() *stream {
	s := &stream{chunk: frame(event(`{"index":0,"delta":{"content":"` + stampMark + strings.Repeat("0", stampDigits) + ` "},"logprobs":null,"finish_reason":null}`))}
	at := bytes.Index(s.chunk, []byte(stampMark)) + len(stampMark)
	s.stamp = s.chunk[at : at+stampDigits]
	s.end = append(frame(event("")), frame("data: [DONE]\n\n")...)
	s.end = append(s.end, "0\r\n\r\n"...)
	return s
}

// event is as vLLM streams it with running usage.
func event(choice string) string {
	return `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1,"model":"bench","choices":[` + choice +
		`],"usage":{"prompt_tokens":300,"total_tokens":320,"completion_tokens":20}}` + "\n\n"
}

func frame(s string) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(s), s) }

// stream writes chunk by chunk, as an engine does. With hold it stops after the first until it is let go.
func (e *engine) stream(c net.Conn, s *stream) error {
	if _, err := c.Write([]byte(streamHead)); err != nil {
		return err
	}
	pace := time.Duration(e.pace.Load())
	for i := range e.chunks.Load() {
		if hold := e.hold.Load(); i == 1 && hold != nil {
			<-*hold
		}
		if pace > 0 {
			time.Sleep(pace)
		}
		putStamp(s.stamp, time.Since(began))
		if _, err := c.Write(s.chunk); err != nil {
			return err
		}
	}
	_, err := c.Write(s.end)
	return err
}

func putStamp(to []byte, d time.Duration) {
	for i, n := len(to)-1, int64(d); i >= 0; i, n = i-1, n/10 {
		to[i] = byte('0' + n%10)
	}
}

// holding lets streams stop after their first chunk until the answer is called.
func (e *engine) holding() (release func()) {
	held := make(chan struct{})
	e.hold.Store(&held)
	return func() {
		e.hold.Store(nil)
		close(held)
	}
}
