package test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// harmless are those that Envoy tidies up: the line is joined, the carriage return taken out.
var harmless = map[string]bool{"folded line": true, "lone carriage return": true}

// TestSmuggling writes what no HTTP library would: requests whose end two parsers would see at different places. Each
// must be refused, and the connection closed after it, or the second request be judged by itself.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	u := tapped(t, "admission")
	const good = `{"model":"cheap","messages":[]}`
	inner := "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nuser-agent: case/smuggled\r\ncontent-type: application/json\r\ncontent-length: 31\r\n\r\n" + good
	head := "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nuser-agent: case/%s\r\nauthorization: Bearer " + u.key("main") + "\r\n"
	for name, rest := range map[string]string{
		"length and chunks":        "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"two lengths":              "content-length: 31\r\ncontent-length: 0\r\n\r\n" + good + inner,
		"a list of lengths":        "content-length: 31, 0\r\n\r\n" + good + inner,
		"negative length":          "content-length: -1\r\n\r\n" + good,
		"length with a sign":       "content-length: +31\r\n\r\n" + good,
		"unknown coding":           "transfer-encoding: xchunked\r\n\r\n" + inner,
		"chunked twice":            "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n" + inner,
		"bad chunk size":           "transfer-encoding: chunked\r\n\r\nzz\r\n" + inner,
		"space before the colon":   "content-length : 31\r\n\r\n" + good,
		"folded line":              "x-a: b\r\n  content-length: 5\r\n\r\n" + good,
		"zero byte in a value":     "x-a: b\x00c\r\ncontent-length: 31\r\n\r\n" + good,
		"lone carriage return":     "x-a: b\rx-spokegate-team: root\r\ncontent-length: 31\r\n\r\n" + good,
		"request line with spaces": "",
	} {
		t.Run(name, func(t *testing.T) {
			label := strings.ReplaceAll(name, " ", "-")
			text := fmt.Sprintf(head, label) + rest
			if rest == "" {
				text = "POST /v1/chat/completions x HTTP/1.1\r\nhost: x\r\n\r\n"
			}
			statuses := exchange(t, u, text)
			for _, s := range statuses {
				if s == http.StatusOK && !harmless[name] {
					t.Errorf("it passed: %v; the worker received %+v", statuses, u.tap.got(casePrefix+label))
				}
			}
			for _, got := range u.tap.got(casePrefix + label) {
				if got.header.Get("X-Spokegate-Team") != "" {
					t.Errorf("the worker received a header of the door's that the client wrote: %v", got.header)
				}
			}
			if got := u.tap.got(casePrefix + "smuggled"); len(got) > 0 {
				t.Errorf("the request inside the body reached the worker: %+v", got)
			}
		})
	}
}

// exchange writes text and gives the statuses of all answers until the connection ends, or nothing more comes.
func exchange(t *testing.T, u *up, text string) []int {
	t.Helper()
	conn, err := dial(t.Context(), u.listen)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	var statuses []int
	for r := bufio.NewReader(conn); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return statuses
		}
		got, err := whole(resp)
		statuses = append(statuses, got.status)
		if err != nil || resp.Close {
			return statuses
		}
	}
}

// TestHTTP10 has no host and no chunks: it must be refused or answered, in either case whole.
func TestHTTP10(t *testing.T) {
	t.Parallel()
	u := tapped(t, "admission")
	for name, text := range map[string]string{
		"1.0":          "GET /v1/models HTTP/1.0\r\nauthorization: Bearer " + u.key("main") + "\r\n\r\n",
		"no host":      "GET /v1/models HTTP/1.1\r\nauthorization: Bearer " + u.key("main") + "\r\n\r\n",
		"two hosts":    "GET /v1/models HTTP/1.1\r\nhost: a\r\nhost: b\r\nauthorization: Bearer " + u.key("main") + "\r\n\r\n",
		"connect":      "CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: 127.0.0.1:22\r\n\r\n",
		"trace":        "TRACE / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer x\r\n\r\n",
		"not HTTP":     "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"a long field": "GET /v1/models HTTP/1.1\r\nhost: x\r\nx-a: " + strings.Repeat("a", 1<<20) + "\r\n\r\n",
		"many fields":  "GET /v1/models HTTP/1.1\r\nhost: x\r\n" + strings.Repeat("x-a: b\r\n", 2000) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := dial(t.Context(), u.listen)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go func() { _, _ = io.WriteString(conn, text) }()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("no answer at all: %v", err)
			}
			r, err := whole(resp)
			if err != nil {
				t.Fatal(err)
			}
			if r.status < 400 || r.status >= 500 || !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") {
				t.Errorf("want a refusal as JSON, got %v", r)
			}
		})
	}
}
