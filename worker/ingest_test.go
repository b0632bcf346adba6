package worker

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/spokegate/spokegate/identity"
)

// mirror is an engine that answers with what it got, in a JSON string.
func mirror(t *testing.T, got chan<- string) string {
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if e := r.Header.Get("Content-Encoding"); e != "" || r.ContentLength != int64(len(body)) {
			t.Errorf("the engine got %d bytes of %d, encoded as %q", len(body), r.ContentLength, e)
		}
		got <- string(body)
		_, _ = io.WriteString(w, `{"choices":[]}`)
	})
}

func zstded(s string) string {
	z, _ := zstd.NewWriter(nil)
	defer z.Close()
	return string(z.EncodeAll([]byte(s), nil))
}

func TestEncodedBodies(t *testing.T) {
	const most = 100_000
	got := make(chan string, 1)
	s := newShim(t, mirror(t, got), func(c *Config) { c.MaxBody = most })
	large := strings.Repeat(" ", most-len(chatBody)) + chatBody
	for _, c := range []struct {
		name, encoding, body string
		status               int
		want                 string
	}{
		{"gzip", "gzip", zipped(chatBody), 200, chatBody},
		{"by its old name", "X-GZIP", zipped(chatBody), 200, chatBody},
		{"zstd", "zstd", zstded(chatBody), 200, chatBody},
		{"identity", "identity", chatBody, 200, chatBody},
		{"as large as may be", "gzip", zipped(large), 200, large},
		{"a bomb", "gzip", zipped(" " + large), 413, "body_too_large"},
		{"a zstd bomb", "zstd", zstded(strings.Repeat(large, 50)), 413, "body_too_large"},
		{"cut short", "zstd", zstded(chatBody)[:20], 400, "invalid_body"},
		{"other text inside", "gzip", zipped("{"), 400, "invalid_body"},
		{"nothing inside", "gzip", zipped(""), 400, "invalid_body"},
		{"another model inside", "zstd", zstded(`{"model":"dear"}`), 403, "model_not_allowed"},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(c.name+" chunked="+strconv.FormatBool(chunked), func(t *testing.T) {
				q := s.request(t, context.Background(), t.Name(), "/v1/chat/completions", c.body, "Content-Encoding", c.encoding)
				if chunked {
					q.Body, q.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(c.body))), -1
				}
				resp, body := s.do(t, q)
				switch {
				case resp.StatusCode != c.status:
					t.Fatalf("%d %s", resp.StatusCode, body)
				case c.status != 200:
					if code := errorCode(t, body); code != c.want {
						t.Errorf("%s, expected %s", code, c.want)
					}
				default:
					if engine := wait(t, got); engine != c.want {
						t.Errorf("the engine got %d bytes %.100q", len(engine), engine)
					}
					if r := s.journal.one(t, t.Name()); r.GetRequestBytes() != int64(len(c.body)) {
						t.Errorf("%d bytes came, and the record says %d", len(c.body), r.GetRequestBytes())
					}
				}
			})
		}
	}
}

// The body names what was asked for, the engine hears its own name of it; nothing else changes.
func TestEngineName(t *testing.T) {
	got := make(chan string, 1)
	s := newShim(t, mirror(t, got), nil)
	for _, c := range []struct {
		name                string
		asked, model, known string
		body, want          string // want is empty: refused
	}{
		{"as it is", "", "m", "", `{ "model":"m", "seed":9007199254740993}`, `{ "model":"m", "seed":9007199254740993}`},
		{"alias", "fast", "m", "", `{"model":"fast"}`, `{"model":"fast"}`},
		{"alias of a LoRA", "fast", "m", "lora-7", `{"x":1e400, "model" : "fast" }`, `{"x":1e400, "model" : "lora-7" }`},
		{"LoRA by its own name", "", "m", "lora-7", `{"model":"\u006d","messages":[]}`, `{"model":"lora-7","messages":[]}`},
		{"a name to be quoted", "", "m", "a\"\\é", `{"model":"m"}`, `{"model":"a\"\\é"}`},
		{"in a stream", "fast", "m", "lora-7", `{"stream":true,"model":"fast"}`,
			`{"stream":true,"model":"lora-7","stream_options":{"include_usage":true,"continuous_usage_stats":true}}`},
		{"options first", "fast", "m", "lora-7", `{"stream_options":null,"stream":true,"model":"fast"}`,
			`{"stream_options":{"include_usage":true,"continuous_usage_stats":true},"stream":true,"model":"lora-7"}`},
		{"the model instead of its alias", "fast", "m", "lora-7", `{"model":"m"}`, ""},
		{"the engine's name", "fast", "m", "lora-7", `{"model":"lora-7"}`, ""},
		{"an alias nobody vouched for", "", "m", "lora-7", `{"model":"fast"}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := s.request(t, context.Background(), "", "/v1/chat/completions", c.body)
			q.Header.Set("X-Spokegate-Context", s.door.minter.Mint(identity.Context{
				Admission: c.name, Endpoint: "large", Model: c.model, Asked: c.asked, EngineName: c.known}, time.Now()))
			resp, body := s.do(t, q)
			if c.want == "" {
				if resp.StatusCode != 403 || errorCode(t, body) != "model_not_allowed" {
					t.Errorf("%d %s", resp.StatusCode, body)
				}
				return
			}
			if resp.StatusCode != 200 {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			if engine := wait(t, got); engine != c.want {
				t.Errorf("the engine got %s, expected %s", engine, c.want)
			}
			if r := s.journal.one(t, c.name); r.Model != c.model || r.GetAskedModel() != c.asked {
				t.Errorf("%v", r)
			}
		})
	}
}
