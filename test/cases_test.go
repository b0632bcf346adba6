package test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// requestCase is one line of a requests file: see its head.
type requestCase struct {
	Name      string
	Method    string
	Path      string
	Headers   map[string]any
	Sent      string
	SentHex   string `yaml:"sent_hex"`
	SentSize  int    `yaml:"sent_size"`
	Chunked   bool
	Only      string // protocol; empty: all
	Status    any
	Code      string
	Upstream  string
	BodyHas   string            `yaml:"upstream_body_contains"`
	HeaderNot map[string]string `yaml:"upstream_header_not"`
	HeaderHas string            `yaml:"upstream_header_present"`
	HeaderOut []string          `yaml:"upstream_header_absent"`
	// Silent: over HTTP/2 the answer may be a reset instead of a status.
	Silent bool `yaml:"may_reset_http2"`
}

func loadCases[T any](t testing.TB, file string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "cases", file))
	if err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := yaml.UnmarshalWithOptions(data, &cases, yaml.Strict()); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(cases) == 0 {
		t.Fatalf("%s has no cases", file)
	}
	return cases
}

// call makes the request of a case. KEY, REVOKED and EXPIRED stand for keys.
func (c requestCase) call(u *up, label string) call {
	keys := strings.NewReplacer("KEY", u.key("main"), "REVOKED", u.key("old"), "EXPIRED", u.key("late"))
	headers := map[string][]string{"content-type": {"application/json"}, "authorization": {"Bearer KEY"}}
	for name, v := range c.Headers {
		headers[strings.ToLower(name)] = texts(v)
	}
	out := call{method: c.Method, target: keys.Replace(c.Path), chunked: c.Chunked, body: c.body()}
	if out.method == "" {
		out.method = "POST"
	}
	if c.Path == "" {
		out.target = "/v1/chat/completions"
	}
	for name, values := range headers {
		for _, v := range values {
			out.fields = append(out.fields, field{name, keys.Replace(v)})
		}
	}
	out.fields = append(out.fields, field{caseHeader, label}, fromStranger())
	return out
}

// texts is a header's value: null is none, a list is one line each.
func texts(v any) []string {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		var out []string
		for _, x := range v {
			out = append(out, fmt.Sprint(x))
		}
		return out
	}
	return []string{fmt.Sprint(v)}
}

func (c requestCase) body() []byte {
	switch {
	case c.SentHex != "":
		b, err := hex.DecodeString(c.SentHex)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", c.Name, err))
		}
		return b
	case c.SentSize > 0:
		const head, tail = `{"model":"cheap","messages":[{"role":"user","content":"`, `"}]}`
		return []byte(head + string(bytes.Repeat([]byte("a"), c.SentSize-len(head)-len(tail))) + tail)
	}
	return []byte(c.Sent)
}

// mayReset is true where HTTP/2 has no better answer: Envoy resets the stream on a header name with an underscore.
func (c requestCase) mayReset() bool {
	for name := range c.Headers {
		if strings.Contains(name, "_") {
			return true
		}
	}
	return c.Silent
}

// statuses are the ones that a case allows.
func (c requestCase) statuses() []int {
	list, ok := c.Status.([]any)
	if !ok {
		list = []any{c.Status}
	}
	var out []int
	for _, s := range list {
		var n int
		if _, err := fmt.Sscan(fmt.Sprint(s), &n); err != nil {
			panic(fmt.Sprintf("%s: status %v", c.Name, s))
		}
		out = append(out, n)
	}
	return out
}
