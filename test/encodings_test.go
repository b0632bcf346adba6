package test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

func gzipped(body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body) // into memory
	_ = w.Close()
	return b.Bytes()
}

func zstded(body []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err) // there is no option to be wrong
	}
	return w.EncodeAll(body, nil)
}

// noise is a body that does not shrink much, so that it is large also when it is encoded.
func noise(n int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	r := rand.New(rand.NewPCG(2026, 5))
	text := make([]byte, n)
	for i := range text {
		text[i] = letters[r.IntN(len(letters))]
	}
	return fmt.Appendf(nil, `{"model":"cheap","seed":18014398509481985,"messages":[{"role":"user","content":"%s"}]}`, text)
}

// bomb is a request that unfolds to more bytes than a door takes.
func bomb(limit int) []byte {
	return append([]byte(`{"model":"cheap","messages":[]`), append(bytes.Repeat([]byte(" "), limit), '}')...)
}

const smallBody = `{"model":"cheap","messages":[{"role":"user","content":"Grüße"}]}`

// encodedCase is a body with a content-encoding. No code: it passes, and the engine gets plain.
type encodedCase struct {
	name, encoding string
	sent, plain    []byte
	status         int
	code           string
	chunked        bool
}

func encodedCases() []encodedCase {
	small, large, huge := []byte(smallBody), noise(200_000), bomb(32<<20)
	gz, zs := gzipped(small), zstded(small)
	two := [][]byte{small[:20], small[20:]}
	refused := func(name, encoding string, sent []byte, status int, code string) encodedCase {
		return encodedCase{name: name, encoding: encoding, sent: sent, status: status, code: code}
	}
	return []encodedCase{
		{name: "gzip", encoding: "gzip", sent: gz, plain: small},
		{name: "gzip in capitals", encoding: "GZip", sent: gz, plain: small},
		{name: "gzip by its old name", encoding: "x-gzip", sent: gz, plain: small},
		{name: "gzip without a length", encoding: "gzip", sent: gz, plain: small, chunked: true},
		{name: "gzip of two members", encoding: "gzip", sent: append(gzipped(two[0]), gzipped(two[1])...), plain: small},
		{name: "large gzip", encoding: "gzip", sent: gzipped(large), plain: large},
		{name: "zstd", encoding: "zstd", sent: zs, plain: small},
		{name: "zstd of two frames", encoding: "zstd", sent: append(zstded(two[0]), zstded(two[1])...), plain: small},
		{name: "large zstd", encoding: "zstd", sent: zstded(large), plain: large},
		{name: "large zstd without a length", encoding: "zstd", sent: zstded(large), plain: large, chunked: true},
		{name: "identity", encoding: "identity", sent: small, plain: small},
		refused("gzip bomb", "gzip", gzipped(huge), http.StatusRequestEntityTooLarge, "body_too_large"),
		refused("zstd bomb", "zstd", zstded(huge), http.StatusRequestEntityTooLarge, "body_too_large"),
		refused("brotli", "br", small, http.StatusUnsupportedMediaType, "unsupported_media_type"),
		refused("deflate", "deflate", small, http.StatusUnsupportedMediaType, "unsupported_media_type"),
		refused("encoded twice", "gzip, gzip", gzipped(gz), http.StatusUnsupportedMediaType, "unsupported_media_type"),
		refused("large brotli", "br", large, http.StatusUnsupportedMediaType, "unsupported_media_type"),
		refused("gzip in name only", "gzip", small, http.StatusBadRequest, "invalid_body"),
		refused("zstd in name only", "zstd", gz, http.StatusBadRequest, "invalid_body"),
		refused("gzip that was cut", "gzip", gz[:len(gz)-9], http.StatusBadRequest, "invalid_body"),
		refused("zstd that was cut", "zstd", zs[:len(zs)-1], http.StatusBadRequest, "invalid_body"),
		refused("gzip and more", "gzip", append(gzipped(small), `{"model":"dear"}`...), http.StatusBadRequest, "invalid_body"),
		refused("gzip of a forbidden model", "gzip", gzipped([]byte(`{"model":"dear","messages":[]}`)), http.StatusForbidden, "model_not_allowed"),
		refused("gzip of two models", "gzip", gzipped([]byte(`{"model":"cheap","model":"dear"}`)), http.StatusBadRequest, "invalid_body"),
		refused("gzip that is not told", "", gz, http.StatusBadRequest, "invalid_body"),
	}
}

// TestEncodings sends encoded bodies, as both pickers and both protocols carry them.
func TestEncodings(t *testing.T) {
	t.Parallel()
	cases := encodedCases()
	eachPicker(t, func(t *testing.T, picker string) {
		u := attached(t, picker)
		for _, p := range protocols {
			for _, c := range cases {
				t.Run(p.name+"/"+c.name, func(t *testing.T) { c.run(t, u, p) })
			}
		}
		t.Run("alias", func(t *testing.T) { // where the shim decodes, and changes the name
			label := casePrefix + "encoded-alias"
			u.ok(t, encodedPost(u.key("nick"), encodedCase{encoding: "zstd", sent: zstded([]byte(aliasAsk))}, label))
			got := once(t, "engine", u.engine.got(label))
			if name := aliasedBody(t, got.body); name != "cheap" && name != engineNames["lora"] {
				t.Errorf("the engine was asked for %q", name)
			}
		})
	})
}

func encodedPost(key string, c encodedCase, label string) call {
	q := post(key, "/v1/chat/completions", string(c.sent), field{caseHeader, label})
	q.chunked = c.chunked
	if c.encoding != "" {
		q.fields = append(q.fields, field{"content-encoding", c.encoding})
	}
	return q
}

func (c encodedCase) run(t *testing.T, u *up, p protocol) {
	label := casePrefix + "encoded/" + p.name + "/" + strings.ReplaceAll(c.name, " ", "-")
	ctx, cancel := context.WithTimeout(t.Context(), 2*callPatience)
	defer cancel()
	began := time.Now()
	r, err := p.send(ctx, u.listen, encodedPost(u.key("main"), c, label))
	if err != nil {
		t.Fatalf("%v (so far: %v)", err, r)
	}
	// A bomb is unfolded up to its limit, in the five seconds that a check may take: on a machine that does much else it is
	// sent again, as Retry-After says.
	for strings.HasSuffix(c.name, "bomb") && r.status == http.StatusServiceUnavailable && time.Since(began) < callPatience {
		u.ledger.refused(r.admission())
		time.Sleep(time.Second)
		if r, err = p.send(ctx, u.listen, encodedPost(u.key("main"), c, label)); err != nil {
			t.Fatal(err)
		}
	}
	if c.code != "" {
		wantRefusal(t, r, "", c.status, c.code)
		if got := u.engine.got(label); len(got) > 0 {
			t.Errorf("the engine received it: %+v", got)
		}
		u.ledger.refused(r.admission())
		return
	}
	if r.status != http.StatusOK {
		t.Fatalf("got %v", r)
	}
	got := once(t, "engine", u.engine.got(label))
	if !bytes.Equal(got.body, c.plain) || got.header.Get("Content-Encoding") != "" || got.header.Get("Content-Length") != fmt.Sprint(len(c.plain)) {
		t.Errorf("the engine got %.200q with %v", got.body, got.header)
	}
	if rec := u.ledger.usage(t, r.admission()); rec.GetRequestBytes() != int64(len(c.sent)) || rec.GetPromptTokens() != 7 || len(rec.GetAnomalies()) > 0 {
		t.Errorf("%d bytes were sent; the record is %v", len(c.sent), rec)
	}
}

// curlEncoded sends files that were encoded before.
func curlEncoded(t *testing.T, s clientSite, args []string) {
	plain := []byte(operations[0].body)
	for encoding, sent := range map[string][]byte{"gzip": gzipped(plain), "zstd": zstded(plain)} {
		path := filepath.Join(t.TempDir(), "body")
		if err := os.WriteFile(path, sent, 0o600); err != nil {
			t.Fatal(err)
		}
		args := append(append(s.asks("main", "@"+path), "-H", "Content-Encoding: "+encoding), args...)
		c := s.curl(t, "/v1/chat/completions", args...)
		if rec := c.charged(t, s.up); rec.GetRequestBytes() != int64(len(sent)) || c.uploaded != int64(len(sent)) {
			t.Errorf("%s: curl sent %d bytes, the record says %d", encoding, c.uploaded, rec.GetRequestBytes())
		}
	}
}
