package envoy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// bodies: who is asked what, and when.
func (r *rig) bodies(t *testing.T) {
	body := strings.Repeat("x", 9<<20)
	limit := int(r.door.withDefaults().HeadCheckAbove)
	for _, c := range []struct {
		name, method string
		body         io.Reader
		asked        []string
		bytes        int // in the last question
		worker       int // bytes that the worker received; -1: not asked
	}{
		{"bodyless GET", "GET", nil, []string{CheckFull}, 0, 0},
		{"DELETE with a body", "DELETE", strings.NewReader("abc"), []string{CheckFull}, 0, 3},
		{"empty POST", "POST", nil, []string{CheckFull}, 0, 0},
		{"small POST", "POST", strings.NewReader(body[:100]), []string{CheckFull}, 100, 100},
		{"POST at the limit", "POST", strings.NewReader(body[:limit]), []string{CheckFull}, limit, limit},
		{"POST above the limit", "POST", strings.NewReader(body[:limit+1]), []string{CheckHead, CheckFull}, limit + 1, limit + 1},
		{"chunked POST", "POST", io.MultiReader(strings.NewReader("abc")), []string{CheckHead, CheckFull}, 3, 3},
		{"5 MB", "POST", strings.NewReader(body[:5<<20]), []string{CheckHead, CheckFull}, 5 << 20, 5 << 20},
		{"at the cap", "POST", strings.NewReader(body[:8<<20]), []string{CheckHead, CheckFull}, 8 << 20, 8 << 20},
		{"over the cap", "POST", strings.NewReader(body[:8<<20+1]), []string{CheckHead}, 0, -1},
		{"over the cap, chunked", "POST", io.MultiReader(strings.NewReader(body)), []string{CheckHead}, 0, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := r.do(t, c.method, "/v1/chat/completions", c.body, "x-test-pick", r.list("a"))
			if c.worker < 0 {
				a.want(t, 413, "body_too_large")
				r.nobodyAsked(t, a)
			} else {
				a.served(t, "a")
				got, _ := r.workers["a"].got.get(a.id)
				if len(got) != 1 || got[0].ContentLength != int64(c.worker) {
					t.Fatalf("the worker got %v", got)
				}
			}
			checks, _ := r.services.authz.checks.get(a.id)
			var asked []string
			for _, k := range checks {
				asked = append(asked, k.kind)
			}
			if !slices.Equal(asked, c.asked) || len(checks[len(checks)-1].body) != c.bytes {
				t.Errorf("asked %v, last with %d bytes; want %v, %d", asked, len(checks[len(checks)-1].body), c.asked, c.bytes)
			}
		})
	}
	for _, encoding := range []string{"gzip", "zstd"} {
		t.Run("a body in "+encoding+" is nobody's but the shim's to decode", func(t *testing.T) {
			packed := "\x1f\x8b\x00 not even " + encoding + "\xff"
			a := r.do(t, "POST", "/v1/chat/completions", strings.NewReader(packed), "x-test-pick", r.list("a"), "content-encoding", encoding)
			a.served(t, "a")
			got, _ := r.workers["a"].got.get(a.id)
			body, _ := io.ReadAll(got[0].Body)
			asked := r.services.authz.checks.await(t, a.id, some[check])[0]
			if got[0].Header.Get("content-encoding") != encoding || string(body) != packed ||
				asked.headers["content-encoding"] != encoding || string(asked.body) != packed {
				t.Errorf("the worker got %q of %v, admission %q of %v", body, got[0].Header, asked.body, asked.headers)
			}
		})
	}
	t.Run("a large body is repeated whole", func(t *testing.T) {
		r.workers["a"].answers(t, refuses)
		a := r.do(t, "POST", "/v1/chat/completions", strings.NewReader(body[:8<<20]), "x-test-pick", r.list("a", "b"))
		a.served(t, "b")
		if got, _ := r.workers["b"].got.get(a.id); got[0].ContentLength != 8<<20 {
			t.Errorf("the second worker got %d bytes", got[0].ContentLength)
		}
	})
	for name, length := range map[string]string{"length": "content-length: 5000000", "chunks": "transfer-encoding: chunked", "zeros": "content-length: 000005"} {
		t.Run("no key is refused before the body is read: "+name, func(t *testing.T) {
			a := r.raw(t, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"+length+"\r\n\r\n")
			if a.status != 401 || a.body != `{"error":{"code":"invalid_api_key"}}` {
				t.Fatalf("got %d %q", a.status, a.body)
			}
			if checks, _ := r.services.authz.checks.get(a.id); len(checks) != 1 || checks[0].kind != CheckHead {
				t.Errorf("asked %+v", checks)
			}
		})
	}
}

// raw writes bytes and reads one response.
func (r *rig) raw(t *testing.T, text string) answer {
	t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, text)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(b), res.Header.Get(RequestIDHeader)}
}

// http1: what Envoy refuses by itself is JSON.
func (r *rig) http1(t *testing.T) {
	const post = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
	for name, c := range map[string]struct {
		text   string
		status int
		code   string
	}{
		"underscore":        {post + "X_Spokegate_Team: root\r\ncontent-length: 0\r\n\r\n", 400, "invalid_request"},
		"escaped slash":     {"POST /v1%2Fchat HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request"},
		"escaped backslash": {"POST /v1%5Cchat HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request"},
		"fragment":          {"GET /v1#x HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request"},
		"nul":               {"GET /v1%00x HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request"},
		"no host":           {"GET /v1/models HTTP/1.1\r\n\r\n", 400, "invalid_request"},
		"options *":         {"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n", 404, "unknown_url"},
		"garbage":           {"garbage\r\n\r\n", 400, "invalid_request"},
		"two lengths":       {post + "content-length: 3\r\ncontent-length: 4\r\n\r\nabc", 400, "invalid_request"},
		"smuggling":         {post + "content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400, "invalid_request"},
		"broken chunk":      {post + "authorization: Bearer good\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400, "invalid_request"},
		"large headers":     {"GET / HTTP/1.1\r\nhost: x\r\nx-a: " + strings.Repeat("a", 40<<10) + "\r\n\r\n", 431, "invalid_request"},
		"many headers":      {"GET / HTTP/1.1\r\nhost: x\r\n" + strings.Repeat("x-a: b\r\n", 120) + "\r\n", 431, "invalid_request"},
		"http/1.0":          {"GET /v1/models HTTP/1.0\r\n\r\n", 426, "invalid_request"},
		"connect":           {"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n\r\n", 403, "forbidden"},
		"upgrade":           {"GET / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer good\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", 403, "forbidden"},
		"no context":        {post + "authorization: Bearer good\r\nx-test-context: -\r\ncontent-length: 0\r\n\r\n", 403, "forbidden"},
		"no endpoint":       {post + "authorization: Bearer good\r\nx-test-endpoint: -\r\ncontent-length: 0\r\n\r\n", 503, "unavailable"},
		"unknown endpoint":  {post + "authorization: Bearer good\r\nx-test-endpoint: who\r\ncontent-length: 0\r\n\r\n", 503, "unavailable"},
		"no workers":        {post + "authorization: Bearer good\r\nx-test-endpoint: empty\r\nx-test-pick: 1.2.3.4:5\r\ncontent-length: 0\r\n\r\n", 503, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.raw(t, c.text)
			if a.id == "" {
				a.id = "refused before Envoy gave it an id"
			}
			a.want(t, c.status, c.code)
			if (a.status == 503) != (a.header.Get("retry-after") == "1") {
				t.Errorf("retry-after %q", a.header.Get("retry-after"))
			}
			r.nobodyAsked(t, a)
		})
	}
	t.Run("anthropic shape", func(t *testing.T) {
		a := r.raw(t, "POST /v1/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer good\r\nx-test-context: -\r\ncontent-length: 0\r\n\r\n")
		if a.status != 403 || !strings.HasPrefix(a.body, `{"type":"error","error":{"type":"permission_error",`) {
			t.Errorf("got %d %s", a.status, a.body)
		}
	})
	t.Run("paths are normal when ext_authz sees them", func(t *testing.T) {
		for sent, seen := range map[string]string{
			"//v1//chat/./completions": "/v1/chat/completions", "/v1/models/../chat/%63ompletions": "/v1/chat/completions", "/v1;a=b/": "/v1;a=b/",
		} {
			a := r.raw(t, fmt.Sprintf("POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", sent))
			if c, _ := r.services.authz.checks.get(a.id); len(c) != 1 || c[0].path != seen {
				t.Errorf("%s was seen as %+v", sent, c)
			}
		}
	})
	t.Run("a connection option cannot take the context away", func(t *testing.T) {
		r.raw(t, post+"authorization: Bearer good\r\nx-test-pick: "+r.list("a")+"\r\nconnection: close, x-spokegate-context\r\ncontent-length: 0\r\n\r\n").served(t, "a")
	})
}

// http2: the same door for HTTP/2 without TLS.
func (r *rig) http2(t *testing.T) {
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true)
	c := &http.Client{Timeout: patience, Transport: &http.Transport{Protocols: only}}
	defer c.CloseIdleConnections()
	request := func(method, key string, size int64) *http.Request {
		req, err := http.NewRequest(method, r.url+"/v1/chat/completions", strings.NewReader(strings.Repeat("x", int(size))))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = -1
		req.Header.Set("authorization", "Bearer "+key)
		req.Header.Set("x-test-pick", r.list("a", "b"))
		return req
	}
	kinds := func(a answer) (out []string) {
		checks, _ := r.services.authz.checks.get(a.id)
		for _, k := range checks {
			out = append(out, k.kind)
		}
		return out
	}
	a := r.send(t, c, request("POST", "good", 5<<20))
	a.served(t, "a")
	if got := kinds(a); !slices.Equal(got, []string{CheckHead, CheckFull}) {
		t.Errorf("asked %v", got)
	}
	if r.door.PickerSocket == "" { // with a picker Envoy sends the body twice: envoy 45470
		r.workers["a"].answers(t, refuses)
		req := request("POST", "good", 1000)
		req.Trailer = http.Header{"X-Trailer": {"v"}}
		a = r.send(t, c, req)
		a.served(t, "b")
		if got, _ := r.workers["b"].got.get(a.id); got[0].ContentLength != 1000 {
			t.Errorf("with trailers the worker got %d bytes", got[0].ContentLength)
		}
	}
	for _, method := range []string{"POST", "GET"} {
		a = r.send(t, c, request(method, "bad", 5<<20))
		if want := map[string]string{"POST": CheckHead, "GET": CheckFull}[method]; a.status != 401 || !slices.Equal(kinds(a), []string{want}) {
			t.Errorf("%s without a key: %d, asked %v", method, a.status, kinds(a))
		}
	}
}
