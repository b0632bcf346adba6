package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// transferred are the parameters with which vLLM's NIXL connector answers a prefill; the number is beyond what a float holds.
const transferred = `{"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [3, 4, 9007199254740993], "remote_engine_id": "e-1", "remote_host": "10.0.0.7", "remote_port": 5600, "tp_size": 1}`

func TestPrefillElsewhere(t *testing.T) {
	p := newPair(t, nil)
	body := `{ "seed": 9007199254740993, "stream" : true, "max_tokens":50, "stream_options":{"include_usage":true}, "messages":[] ,"model":"m" }`
	_, got := p.send(t, "a", "/v1/chat/completions", body, "X-Envoy-Attempt-Count", "2")
	if want := "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n: spokegate-usage {\"prompt_tokens\":7,\"completion_tokens\":1}\n\n: spokegate-usage {\"prompt_tokens\":7,\"completion_tokens\":1,\"terminal\":true}\ndata: [DONE]\n\n"; got != want {
		t.Errorf("the client got %q", got)
	}
	if got, want := p.prefill.asked(), `{ "seed": 9007199254740993, "stream" : false, "max_tokens":1, "stream_options":null, "messages":[] ,"model":"m"`+
		`,"min_tokens":1,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null},"max_completion_tokens":1 }`; len(got) != 1 || got[0] != want {
		t.Errorf("the prefiller's engine was asked\n%s, expected\n%s", got, want)
	}
	if got, want := p.decode.asked(), `{ "seed": 9007199254740993, "stream" : true, "max_tokens":50, "stream_options":{"include_usage":true,"continuous_usage_stats":true}, "messages":[] ,"model":"m"`+
		`,"kv_transfer_params":`+transferred+` }`; len(got) != 1 || got[0] != want {
		t.Errorf("the decoder's engine was asked\n%s, expected\n%s", got, want)
	}
	first, second := p.prefiller.journal.one(t, "a"), p.decoder.journal.one(t, "a")
	if first.Id != "a/served/2/prefill" || first.Worker != "w2" || first.Outcome != "complete" || first.GetPromptTokens() != 7 || first.GetCompletionTokens() != 1 || first.Stream {
		t.Errorf("the prefiller's record %v", first)
	}
	if second.Id != "a/served/2/main" || second.Worker != "w1" || second.Outcome != "complete" || second.GetPromptTokens() != 7 || second.GetCompletionTokens() != 1 || !second.Stream {
		t.Errorf("the decoder's record %v", second)
	}
	if p.counted("remote") != 1 {
		t.Error("not counted")
	}
}

// What a prefiller does wrong the client never sees: its own worker reads the prompt. The next request asks it again.
func TestPrefillFallsBack(t *testing.T) {
	p := newPair(t, nil)
	good := p.prefill.answer
	for i, c := range []struct {
		outcome string
		answer  http.HandlerFunc
	}{
		{"failed", says(500, `{"error":{"message":"x"}}`)},
		{"failed", says(302, ``)},
		{"refused", says(400, `{"error":{"message":"x"}}`)},
		{"refused", says(503, `{"error":{"message":"x"}}`)},
		{"refused", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }}, // its shim says 503
		{"no_params", says(200, `{"choices":[]}`)},
		{"no_params", says(200, `{"choices":[],"kv_transfer_params":null}`)},
		{"no_params", says(200, `{"choices":[],"kv_transfer_params":"x"}`)},
		{"refused", says(200, `{"choices":[`)},
		{"broken", says(200, `{"choices":[],"kv_transfer_params":{"x":"`+strings.Repeat("x", maxPrefilled)+`"}}`)},
		{"remote", good},
	} {
		p.prefill.script(c.answer)
		before, admission := p.counted(c.outcome), fmt.Sprint("r", i)
		resp, body := p.send(t, admission, "/v1/chat/completions", streamBody)
		if resp.StatusCode != 200 || !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("%d, %s: the client got %d %s", i, c.outcome, resp.StatusCode, body)
		}
		asked := p.decode.asked()
		if len(asked) != i+1 || strings.Contains(asked[i], "kv_transfer_params") != (c.outcome == "remote") {
			t.Errorf("%d, %s: the engine was asked %s", i, c.outcome, asked[min(i, len(asked)-1):])
		}
		if r := p.decoder.journal.one(t, admission); r.Outcome != "complete" || r.Id != admission+"/served/1/main" {
			t.Errorf("%d, %s: %v", i, c.outcome, r)
		}
		if p.counted(c.outcome) != before+1 {
			t.Errorf("%d, %s: not counted", i, c.outcome)
		}
	}
}

// A prefiller that hangs is waited for, and then left.
func TestPrefillerHangs(t *testing.T) {
	p := newPair(t, func(c *Config) { c.PrefillTimeout = 50 * time.Millisecond })
	p.prefill.script(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	resp, body := p.send(t, "a", "/v1/chat/completions", streamBody)
	if resp.StatusCode != 200 || !strings.HasSuffix(body, "data: [DONE]\n\n") || p.counted("timeout") != 1 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	eventually(t, "the prefiller is left", func() bool { return p.prefiller.states.count() == 0 })
}

// A prefiller that is gone, or that nobody vouches for, is as good as none.
func TestPrefillerThatIsNone(t *testing.T) {
	p := newPair(t, nil)
	gone := httptest.NewServer(nil)
	gone.Close()
	for i, c := range []struct{ outcome, token string }{
		{"unreachable", p.leg("n0", gone.Listener.Addr().String(), streamBody)},
		{"invalid", p.leg("another", p.prefiller.Addr(), streamBody)},
		{"invalid", p.leg("n2", "", streamBody)},
		{"invalid", p.leg("n3", p.decoder.Addr(), streamBody)},
		{"invalid", p.decoder.context(t, "n4")},
		{"invalid", "garbage"},
		{"refused", p.leg("n6", p.prefiller.Addr(), "another body")}, // 403 of its shim
	} {
		before, admission := p.counted(c.outcome), fmt.Sprint("n", i)
		resp, body := p.send(t, admission, "/v1/chat/completions", streamBody, "X-Spokegate-Prefill-Context", c.token)
		if resp.StatusCode != 200 || !strings.HasSuffix(body, "data: [DONE]\n\n") || p.counted(c.outcome) != before+1 {
			t.Errorf("%d, %s: %d %s", i, c.outcome, resp.StatusCode, body)
		}
	}
	if n := len(p.prefill.asked()); n != 0 {
		t.Errorf("the prefiller's engine was asked %d times", n)
	}
}

// Our own engine could not get the blocks: it is asked again without them.
func TestPrefillIsNotTaken(t *testing.T) {
	p := newPair(t, nil)
	good := p.decode.answer
	p.decode.script(func(w http.ResponseWriter, r *http.Request) {
		if asked := p.decode.asked(); strings.Contains(asked[len(asked)-1], "kv_transfer_params") {
			says(500, `{"error":{"message":"KV load failure"}}`)(w, r)
			return
		}
		good(w, r)
	})
	resp, body := p.send(t, "a", "/v1/chat/completions", streamBody)
	if resp.StatusCode != 200 || !strings.HasSuffix(body, "data: [DONE]\n\n") || p.counted("not_taken") != 1 || p.counted("remote") != 0 || len(p.decode.asked()) != 2 {
		t.Errorf("%d %s after %s", resp.StatusCode, body, p.decode.asked())
	}
	if r := p.decoder.journal.one(t, "a"); r.Outcome != "complete" {
		t.Errorf("%v", r)
	}
}

// What two engines cannot share one does alone.
func TestPrefillIsNotForAll(t *testing.T) {
	p := newPair(t, nil)
	for i, c := range []struct {
		path, more string
		remote     bool
	}{
		{"chat/completions", `"n":1,"best_of":null`, true},
		{"chat/completions", `"n":2`, false},
		{"chat/completions", `"prompt_logprobs":1`, false},
		{"chat/completions", `"kv_transfer_params":{"mine":1}`, false},
		{"chat/completions", `"kv_transfer_params":null`, true},
		{"completions", `"prompt":"x","echo":false`, true},
		{"completions", `"prompt":["x","y"]`, false},
		{"completions", `"prompt":"x","echo":true`, false},
		{"completions", `"prompt":"x","best_of":2`, false},
		{"responses", `"input":"x"`, false},
		{"embeddings", `"input":"x"`, false},
	} {
		before := p.counted("unsupported")
		p.send(t, fmt.Sprint("s", i), "/v1/"+c.path, `{"model":"m",`+c.more+`,"stream":true}`)
		asked := p.decode.asked()
		if remote := strings.Contains(asked[i], `"kv_transfer_params":{"do_remote_prefill"`); remote != c.remote || p.counted("unsupported")-before != map[bool]int{false: 1}[c.remote] {
			t.Errorf("%s %s: %s", c.path, c.more, asked[i])
		}
		if !json.Valid([]byte(asked[i])) {
			t.Errorf("not JSON: %s", asked[i])
		}
	}
	for _, asked := range p.prefill.asked() {
		var body struct {
			Max, MaxCompletion, Min *int
			Stream                  *bool
		}
		if err := json.Unmarshal([]byte(strings.NewReplacer("max_tokens", "max", "max_completion_tokens", "maxcompletion", "min_tokens", "min").Replace(asked)), &body); err != nil || *body.Max != 1 || *body.Min != 1 || *body.Stream {
			t.Errorf("%s: %v", asked, err)
		}
	}
}

// A prefill context is good for one prefill, at its worker, with its body; a main one for none.
func TestPrefillMisused(t *testing.T) {
	p := newPair(t, nil)
	call := func(s *shim, name, token, body string) (int, string) {
		q := s.request(t, context.Background(), "a", "/v1/chat/completions", body)
		q.Header.Del("X-Spokegate-Context")
		q.Header.Set(name, token)
		resp, _ := s.do(t, q)
		return resp.StatusCode, resp.Header.Get("X-Spokegate-Refused")
	}
	token := p.leg("a", p.prefiller.Addr(), streamBody)
	const main, prefill = "X-Spokegate-Context", "X-Spokegate-Prefill-Context"
	for _, c := range []struct {
		what        string
		to          *shim
		name, token string
		body        string
		status      int
		reason      string
	}{
		{"a main context for a prefill", p.prefiller, prefill, p.prefiller.context(t, "x"), streamBody, 403, "context_leg"},
		{"a prefill context for an answer", p.prefiller, main, token, streamBody, 403, "context_leg"},
		{"at another worker", p.decoder, prefill, token, streamBody, 403, "context_worker"},
		{"with another body", p.prefiller, prefill, p.leg("b", p.prefiller.Addr(), streamBody), chatBody, 403, "context_body"},
		{"for two answers", p.prefiller, prefill, p.leg("c", p.prefiller.Addr(), `{"model":"m","n":2}`), `{"model":"m","n":2}`, 400, "invalid_body"},
		{"as it should be", p.prefiller, prefill, token, streamBody, 200, ""},
		{"twice", p.prefiller, prefill, token, streamBody, 403, "context_replayed"},
	} {
		if status, reason := call(c.to, c.name, c.token, c.body); status != c.status || reason != c.reason {
			t.Errorf("%s: %d %s", c.what, status, reason)
		}
	}
	if len(p.prefill.asked()) != 1 || len(p.decode.asked()) != 0 {
		t.Errorf("the engines were asked %s and %s", p.prefill.asked(), p.decode.asked())
	}
}

// A client that leaves during the prefill frees both engines.
func TestClientLeavesInThePrefill(t *testing.T) {
	p := newPair(t, nil)
	begun, ended := make(chan struct{}), make(chan struct{})
	p.prefill.script(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	})
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	q := p.decoder.request(t, ctx, "a", "/v1/chat/completions", streamBody, "X-Spokegate-Prefill-Context", p.leg("a", p.prefiller.Addr(), streamBody))
	left := make(chan error, 1)
	go func() {
		_, err := p.decoder.client.Do(q)
		left <- err
	}()
	wait(t, begun)
	leave()
	wait(t, ended)
	if err := wait(t, left); err == nil {
		t.Error("the client was answered")
	}
	for _, s := range []*shim{p.prefiller, p.decoder} {
		if r := s.journal.one(t, "a"); r.Outcome != "client_cut" || r.Status != nil {
			t.Errorf("%v", r)
		}
	}
	if len(p.decode.asked()) != 0 {
		t.Error("the decoder's engine was asked")
	}
}

func TestPrefillOverTLS(t *testing.T) {
	serving, trusting := certified(t)
	p := newPair(t, func(c *Config) { c.TLS, c.PeerTLS = serving, trusting })
	q := p.decoder.request(t, context.Background(), "a", "/v1/chat/completions", streamBody, "X-Spokegate-Prefill-Context", p.leg("a", p.prefiller.Addr(), streamBody))
	q.URL.Scheme = "https"
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || p.counted("remote") != 1 {
		t.Errorf("%d", resp.StatusCode)
	}
}
