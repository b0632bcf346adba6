package sim

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRanksHaveCachesOfTheirOwn: a prompt is found again at the rank that computed it, and at no other.
func TestRanksHaveCachesOfTheirOwn(t *testing.T) {
	s, err := New(Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	body := `{"model":"m","max_tokens":1,"prompt":"` + strings.Repeat("a long prompt, ", 20) + `"}`
	for i, c := range []struct {
		rank   string
		status int
		cached bool
	}{{"1", 200, false}, {"0", 200, false}, {"1", 200, true}, {"", 200, true}, {"2", 400, false}, {"-1", 400, false}, {"x", 400, false}} {
		q := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(body))
		id := fmt.Sprint(i)
		q.Header.Set("X-Request-Id", id)
		if c.rank != "" {
			q.Header.Set("X-data-parallel-rank", c.rank)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, q)
		if w.Code != c.status {
			t.Fatalf("rank %q: %d %s", c.rank, w.Code, w.Body)
		}
		if w.Code != http.StatusOK {
			continue
		}
		if a := s.accounts.find(id)[0]; (a.CachedTokens > 0) != c.cached || fmt.Sprint(a.Rank) != max(c.rank, "0") {
			t.Errorf("request %d: %+v", i, a)
		}
	}
}

// TestPromptsGoFromOneToTheOther, as in vLLM: the first tells what it keeps, the second takes it as computed.
func TestPromptsGoFromOneToTheOther(t *testing.T) {
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		prompt := `"prompt":"` + strings.Repeat("a long prompt, ", 20) + `"`
		if strings.Contains(path, "chat") {
			prompt = `"messages":[{"role":"user","content":"` + strings.Repeat("a long prompt, ", 20) + `"}]`
		}
		ask := func(id, params string) (RequestAccount, string) {
			s, err := New(Config{})
			if err != nil {
				t.Fatal(err)
			}
			q := httptest.NewRequest("POST", path, strings.NewReader(`{"model":"m","max_tokens":1,`+prompt+params+`}`))
			q.Header.Set("X-Request-Id", id)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, q)
			if w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			return s.accounts.find(id)[0], w.Body.String()
		}
		first, answer := ask("p", `,"kv_transfer_params":{"do_remote_decode":true}`)
		said := get[struct {
			Transfer *transfer `json:"kv_transfer_params"`
		}](t, answer).Transfer
		if first.CachedTokens != 0 || first.Transferred || said == nil || !said.RemotePrefill || len(said.Blocks) != int(first.PromptTokens/BlockTokens) {
			t.Fatalf("%s: %+v, told %+v", path, first, said)
		}
		second, answer := ask("d", `,"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":[0]}`)
		if !second.Transferred || second.CachedTokens != (second.PromptTokens-1)/BlockTokens*BlockTokens || strings.Contains(answer, "kv_transfer") {
			t.Errorf("%s: %+v", path, second)
		}
		if alone, answer := ask("a", ""); alone.CachedTokens != 0 || strings.Contains(answer, "kv_transfer") {
			t.Errorf("%s: %+v", path, alone)
		}
	}
}
