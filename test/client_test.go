package test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// field is one header line, in the order and the spelling in which it is sent.
type field struct{ name, value string }

// call is a request, byte for byte: nothing is added to it but its length.
type call struct {
	method, target string // target as in the request line
	fields         []field
	body           []byte
	chunked        bool // HTTP/1.1: no content-length; HTTP/2: none either
	trailers       http.Header
}

// reply is a response, whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) admission() string { return r.header.Get("X-Request-Id") }

func (r reply) String() string {
	return fmt.Sprintf("%d %v %q", r.status, r.header, r.body[:min(len(r.body), 600)])
}

// callPatience is for one call, and streamPatience for one that a test reads as it goes on: on a machine that does much else.
const (
	callPatience   = 2 * time.Minute
	streamPatience = 10 * time.Minute
)

// protocol sends a call to an address. An error means that no whole response came.
type protocol struct {
	name string
	send func(ctx context.Context, addr string, c call) (reply, error)
}

var (
	http1     = protocol{"http1", sendHTTP1}
	http2c    = protocol{"http2", sendHTTP2}
	protocols = []protocol{http1, http2c}
)

// sendHTTP1 writes the request itself: Go's client would refuse or tidy what must be tested.
func sendHTTP1(ctx context.Context, addr string, c call) (reply, error) {
	conn, err := dial(ctx, addr)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	// The answer may come before the body is sent, and the rest of it then meets a closed connection.
	go func() { _, _ = conn.Write(c.http1(addr)) }()
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: c.method})
	if err != nil {
		return reply{}, err
	}
	return whole(resp)
}

func dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(callPatience)
	}
	return conn, conn.SetDeadline(deadline)
}

func (c call) http1(host string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nhost: %s\r\n", c.method, c.target, host)
	for _, f := range c.fields {
		fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
	}
	if !c.chunked {
		if len(c.body) > 0 || c.method == "POST" {
			fmt.Fprintf(&b, "content-length: %d\r\n", len(c.body))
		}
		b.WriteString("\r\n")
		b.Write(c.body)
		return b.Bytes()
	}
	b.WriteString("transfer-encoding: chunked\r\n\r\n")
	for body := c.body; len(body) > 0; {
		n := min(len(body), 8<<10)
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	b.WriteString("0\r\n\r\n")
	return b.Bytes()
}

func whole(resp *http.Response) (reply, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, body}, err
}

// priorKnowledge speaks HTTP/2 in clear text, on a connection of its own.
func priorKnowledge() *http.Transport {
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: only, DisableCompression: true}
}

// connectionFields may not be sent over HTTP/2.
var connectionFields = map[string]bool{"connection": true, "transfer-encoding": true, "upgrade": true, "keep-alive": true, "host": true}

func sendHTTP2(ctx context.Context, addr string, c call) (reply, error) {
	tr := priorKnowledge()
	defer tr.CloseIdleConnections()
	var body io.Reader = bytes.NewReader(c.body)
	if c.chunked {
		body = io.MultiReader(body) // hides the length
	}
	if c.method == "GET" && len(c.body) == 0 {
		body = nil
	}
	req, err := http.NewRequestWithContext(ctx, c.method, "http://"+addr, body)
	if err != nil {
		return reply{}, err
	}
	// An opaque URL goes out as it is.
	req.URL = &url.URL{Scheme: "http", Host: addr, Opaque: "//" + addr + c.target}
	req.Trailer = c.trailers
	for _, f := range c.fields {
		if name := strings.ToLower(f.name); !connectionFields[name] {
			req.Header[name] = append(req.Header[name], f.value)
		}
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	return whole(resp)
}

// post is the usual request.
func post(key, path, body string, more ...field) call {
	fields := []field{{"content-type", "application/json"}, {"authorization", "Bearer " + key}}
	return call{method: "POST", target: path, fields: append(fields, more...), body: []byte(body)}
}

func get(key, path string) call {
	return call{method: "GET", target: path, fields: []field{{"authorization", "Bearer " + key}}}
}

// do sends a call over HTTP/1.1 and wants an answer of whatever status.
func (u *up) do(t testing.TB, c call) reply {
	t.Helper()
	return u.doOver(t, http1, c)
}

func (u *up) doOver(t testing.TB, p protocol, c call) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callPatience)
	defer cancel()
	r, err := p.send(ctx, u.listen, c)
	if err != nil {
		t.Fatalf("%s %s over %s: %v (so far: %v)", c.method, c.target, p.name, err, r)
	}
	return r
}

// ok wants a 200.
func (u *up) ok(t testing.TB, c call) reply {
	t.Helper()
	r := u.do(t, c)
	if r.status != http.StatusOK {
		t.Fatalf("%s %s: want 200, got %v", c.method, c.target, r)
	}
	return r
}

// openStream sends a call over HTTP/1.1 and gives the response as it comes. Closing it cuts the connection.
func (u *up) openStream(ctx context.Context, c call) (*stream, error) {
	conn, err := dial(ctx, u.listen)
	if err != nil {
		return nil, err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		_ = conn.SetDeadline(time.Now().Add(streamPatience))
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	if _, err := conn.Write(c.http1(u.listen)); err != nil {
		stop()
		return nil, errors.Join(err, conn.Close())
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: c.method})
	if err != nil {
		stop()
		return nil, errors.Join(err, conn.Close())
	}
	return &stream{conn: conn, resp: resp, lines: bufio.NewReader(resp.Body), stop: stop}, nil
}

// stream is a response that is being read.
type stream struct {
	conn  net.Conn
	resp  *http.Response
	lines *bufio.Reader
	read  []string
	stop  func() bool
}

func (s *stream) admission() string { return s.resp.Header.Get("X-Request-Id") }

// next reads one line.
func (s *stream) next() (string, error) {
	line, err := s.lines.ReadString('\n')
	s.read = append(s.read, line)
	return line, err
}

// until reads lines until one holds the text, n times.
func (s *stream) until(text string, n int) error {
	for n > 0 {
		line, err := s.next()
		n -= strings.Count(line, text)
		if err != nil && n > 0 {
			return fmt.Errorf("want %q %d times more, got %w after %q", text, n, err, s.read)
		}
	}
	return nil
}

// cut leaves at once.
func (s *stream) cut() {
	s.stop()
	s.conn.Close()
}
