package epp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// patience is for what happens at once, unless the machine is busy.
const patience = 3 * time.Minute

// call is a request to a listener.
type call struct {
	listener string // "http" where empty
	http2    bool
	method   string // POST where empty
	path     string // "/v1/completions" where empty
	subset   *structpb.Value
	header   http.Header
	body     []byte
	chunked  bool // its length is not told
	trailer  http.Header
}

// reply is what came back.
type reply struct {
	status          int
	proto           string
	header, trailer http.Header
	body            []byte
	got             received // of what is no answer of its own kind
}

// list is a subset as the protocol has it.
func list(addrs ...string) *structpb.Value {
	l := &structpb.ListValue{}
	for _, a := range addrs {
		l.Values = append(l.Values, structpb.NewStringValue(a))
	}
	return structpb.NewListValue(l)
}

func text(s string) *structpb.Value { return structpb.NewStringValue(s) }

// encoded is a subset as the gateway reads it from a header.
func encoded(subset *structpb.Value) string {
	wire, err := proto.Marshal(subset)
	if err != nil {
		panic(err) // a value that has no wire form cannot be made
	}
	return base64.StdEncoding.EncodeToString(wire)
}

func transport(t *testing.T, http2 bool) *http.Transport {
	tr := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// begin sends it and waits for the headers of the answer.
func (c call) begin(ctx context.Context, t *testing.T) *http.Response {
	t.Helper()
	var body io.Reader
	if c.body != nil {
		body = bytes.NewReader(c.body)
	}
	if c.chunked || c.trailer != nil {
		body = struct{ io.Reader }{bytes.NewReader(c.body)}
	}
	req, err := http.NewRequestWithContext(ctx, orElse(c.method, "POST"), "http://"+lab.listeners[orElse(c.listener, "http")]+orElse(c.path, "/v1/completions"), body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for name, values := range c.header {
		req.Header[name] = values
	}
	if c.subset != nil {
		req.Header.Set("X-Test-Subset", encoded(c.subset))
	}
	req.Trailer = c.trailer
	resp, err := transport(t, c.http2).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// do sends it and reads the answer to its end.
func (c call) do(t *testing.T) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp := c.begin(ctx, t)
	defer resp.Body.Close()
	r := reply{status: resp.StatusCode, proto: resp.Proto, header: resp.Header}
	var err error
	if r.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatalf("the answer broke off after %d bytes: %v", len(r.body), err)
	}
	r.trailer = resp.Trailer
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == "application/json" {
		if err := json.Unmarshal(r.body, &r.got); err != nil {
			t.Fatalf("the answer is not whole: %v", err)
		}
	}
	return r
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (r reply) String() string {
	return fmt.Sprintf("%d from %q, served %q, picked %q, metadata %q: %.200s", r.status, r.header.Get("X-Worker"), r.header.Get("X-Served"),
		r.header.Get("X-Picked-Header"), r.header.Get("X-Picked-Metadata"), r.body)
}

// followed checks that the first worker picked has served, and that everybody says so: the header, the metadata, Envoy.
func (r reply) followed(t *testing.T) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("not answered: %v", r)
	}
	first, _, _ := strings.Cut(r.header.Get("X-Picked-Metadata"), ",")
	if by := r.header.Get("X-Worker"); by == "" || by != first || by != r.header.Get("X-Served") {
		t.Errorf("the first picked has not served: %v", r)
	}
	if r.header.Get("X-Picked-Header") != r.header.Get("X-Picked-Metadata") {
		t.Errorf("header and metadata name others: %v", r)
	}
}

// prompt is a body, another for each n.
func prompt(n int) []byte {
	return fmt.Appendf(nil, `{"model":"m","seed":9007199254740993,"prompt":"%d: write as a critic would"}`, n)
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// until waits for a fact.
func until(t *testing.T, what string, fact func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !fact(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("never: %s", what)
		}
	}
}
