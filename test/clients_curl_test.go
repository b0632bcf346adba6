package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// curled is what curl says of one transfer.
type curled struct {
	version, connects, encoding string
	status                      int
	uploaded                    int64
	admission                   string
	body                        []byte
	talk                        string // with -v
}

// curlFacts go to stderr, where -v talks too, and end it.
const curlFacts = "%{stderr}%{http_version} %{num_connects} %{response_code} %{size_upload} %header{x-request-id} [%header{content-encoding}]\n"

// curl runs curl on a path. Arguments come before what every request has.
func (s clientSite) curl(t *testing.T, path string, args ...string) curled {
	t.Helper()
	body := filepath.Join(t.TempDir(), "body")
	ctx, cancel := context.WithTimeout(t.Context(), callPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "curl", append([]string{"-q", "-sS", "-N", "-o", body, "-w", curlFacts}, append(args, s.url+path)...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("curl: %v\n%s", err, said.String())
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	f := strings.Fields(lines[len(lines)-1])
	if len(f) != 6 {
		t.Fatalf("curl says %q", said.String())
	}
	data, err := os.ReadFile(body)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	c := curled{version: f[0], connects: f[1], admission: f[4], encoding: f[5], body: data, talk: said.String()}
	c.status, _ = strconv.Atoi(f[2])
	c.uploaded, _ = strconv.ParseInt(f[3], 10, 64)
	return c
}

// asks are the arguments of a request with a key and a body.
func (s clientSite) asks(key, body string) []string {
	return []string{"-H", "Authorization: Bearer " + s.key(key), "-H", "Content-Type: application/json", "--data-binary", body}
}

// TestClientCurl runs curl as people do.
func TestClientCurl(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("curl", "--version").Output(); err != nil || !bytes.Contains(out, []byte("HTTP2")) {
		t.Fatalf("curl with HTTP/2 is needed: %v %s", err, out)
	}
	plain, secure := plainSite(t), tlsSite(t)
	for _, way := range []struct {
		name, version string
		site          clientSite
		args          []string
	}{
		{"http1.1", "1.1", plain, []string{"--http1.1"}},
		{"http2", "2", plain, []string{"--http2-prior-knowledge"}},
		{"tls http1.1", "1.1", secure, []string{"-k", "--http1.1"}},
		{"tls alpn h2", "2", secure, []string{"-k", "-v"}},
		{"tls trusted", "2", secure, []string{"--cacert", secure.roots, "--tlsv1.3"}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			curlOperations(t, way.site, way.version, way.args)
			t.Run("large", func(t *testing.T) { curlLarge(t, way.site, way.version, way.args) })
			t.Run("compressed", func(t *testing.T) { curlCompressed(t, way.site, way.args) })
			t.Run("encoded", func(t *testing.T) { curlEncoded(t, way.site, way.args) })
			if way.name != "http2" { // a fault of curl 7.88: it does not use a connection again that it opened with prior knowledge
				t.Run("reused", func(t *testing.T) { curlReused(t, way.site, way.args) })
			}
		})
	}
}

// curlOperations calls each operation, whole and as a stream.
func curlOperations(t *testing.T, s clientSite, version string, args []string) {
	for _, op := range operations {
		for _, stream := range []bool{false, true} {
			body := op.body
			if stream {
				if !op.streams {
					continue
				}
				body = streamed(body)
			}
			c := s.curl(t, op.path, append(s.asks("main", body), args...)...)
			rec := c.charged(t, s.up)
			if c.version != version || rec.GetOperation() != op.name || rec.GetStream() != stream || rec.GetOutcome() != usage.OutcomeComplete {
				t.Errorf("%s: HTTP/%s, the record is %s", op.name, c.version, usage.AppendJSON(nil, rec))
			}
			if stream && !bytes.Contains(c.body, []byte(op.terminal)) || !stream && !json.Valid(c.body) {
				t.Errorf("%s: the body is %q", op.name, c.body)
			}
			if s.roots != "" && strings.Contains(c.talk, "ALPN") && !strings.Contains(c.talk, "server accepted h2") {
				t.Errorf("no HTTP/2 by ALPN: %s", c.talk)
			}
		}
	}
}

// charged wants a 200, and gives its usage record, which must count ten tokens where some are generated.
func (c curled) charged(t *testing.T, u *up) *usagev1.Record {
	t.Helper()
	if c.status != http.StatusOK {
		t.Fatalf("got %d %q", c.status, c.body)
	}
	rec := u.ledger.usage(t, c.admission)
	want := int64(10)
	if rec.GetOperation() == "embeddings" {
		want = 0
	}
	if rec.CompletionTokens == nil || rec.GetCompletionTokens() != want || rec.GetPromptTokens() < 1 || rec.GetResponseBytes() != int64(len(c.body)) || len(rec.GetAnomalies()) > 0 {
		t.Errorf("curl got %d bytes; the record is %s", len(c.body), usage.AppendJSON(nil, rec))
	}
	return rec
}

// curlLarge sends three megabytes, for which curl asks leave first. Who has no key, or sends too much, is refused while curl
// is sending; over HTTP/2 not every curl hears that.
func curlLarge(t *testing.T, s clientSite, version string, args []string) {
	write := func(n int) string {
		path := filepath.Join(t.TempDir(), "body.json")
		body := fmt.Sprintf(`{"model":"sim-small","max_tokens":10,"messages":[{"role":"user","content":%q}]}`, strings.Repeat("x", n))
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		return "@" + path
	}
	three := write(3 << 20)
	args = append([]string{"-v", "-H", "Expect: 100-continue"}, args...)
	c := s.curl(t, "/v1/chat/completions", append(s.asks("main", three), args...)...)
	if rec := c.charged(t, s.up); c.uploaded < 3<<20 || rec.GetRequestBytes() < 3<<20 || rec.GetPromptTokens() < 3<<20/4 {
		t.Errorf("curl sent %d bytes; the record is %s", c.uploaded, usage.AppendJSON(nil, rec))
	}
	if version != "1.1" {
		return
	}
	if !strings.Contains(c.talk, "HTTP/1.1 100 Continue") {
		t.Errorf("curl was not told to continue: %s", c.talk)
	}
	stranger := append([]string{"-H", "Authorization: Bearer sk-nonsense", "-H", "Content-Type: application/json", "--data-binary", three}, args...)
	if c = s.curl(t, "/v1/chat/completions", stranger...); c.status != http.StatusUnauthorized || !bytes.Contains(c.body, []byte("invalid_api_key")) {
		t.Errorf("without a key: %d %q", c.status, c.body)
	}
	s.ledger.refused(c.admission)
	c = s.curl(t, "/v1/chat/completions", append(s.asks("main", write(clientsLimit)), args...)...)
	if c.status != http.StatusRequestEntityTooLarge || !bytes.Contains(c.body, []byte("body_too_large")) {
		t.Errorf("above the limit: %d %q after %d bytes", c.status, c.body, c.uploaded)
	}
	s.ledger.refused(c.admission)
}

// curlCompressed offers every encoding that curl knows: nothing is encoded on the way, and usage is read.
func curlCompressed(t *testing.T, s clientSite, args []string) {
	for _, body := range []string{operations[0].body, streamed(operations[0].body)} {
		c := s.curl(t, "/v1/chat/completions", append(append(s.asks("main", body), "--compressed"), args...)...)
		if c.charged(t, s.up); c.encoding != "[]" {
			t.Errorf("the answer is encoded: %s", c.encoding)
		}
	}
}

// curlReused sends requests over one connection.
func curlReused(t *testing.T, s clientSite, args []string) {
	more := append(append(s.asks("main", operations[0].body), args...), s.url+"/v1/chat/completions", "-o", filepath.Join(t.TempDir(), "first"))
	if c := s.curl(t, "/v1/chat/completions", more...); c.connects != "0" {
		t.Errorf("the second request took %s new connections", c.connects)
	} else {
		c.charged(t, s.up)
	}
}

// TestClientCurlLeaves gives up by curl's own time limit in the middle of a stream.
func TestClientCurlLeaves(t *testing.T) {
	t.Parallel()
	s := plainSite(t)
	var id string
	began := false
	for limit := 2; !began; limit *= 5 { // a slow machine may need more before the first event
		id = fmt.Sprintf("curl-leaves-%d", time.Now().UnixNano())
		cmd := exec.CommandContext(t.Context(), "curl", append(s.asks("main", longBody("curl")), "-q", "-sSN", "--max-time", fmt.Sprint(limit), "-H", "X-Request-Id: "+id, s.url+"/v1/chat/completions")...)
		out, err := cmd.Output()
		began = bytes.Contains(out, []byte("data:"))
		if cmd.ProcessState.ExitCode() != 28 || !began && limit > 100 {
			t.Fatalf("want curl's exit code of a timeout after some events, got %v with %d bytes", err, len(out))
		}
	}
	rec := s.ledger.usage(t, s.ledger.admissionOf(t, id))
	if n := rec.GetCompletionTokens(); rec.GetOutcome() != usage.OutcomeClientCut || n < 1 || n >= longTokens {
		t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
	}
}
