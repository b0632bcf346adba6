package test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrefillApartFromDecode: behind the real Envoy a long new prompt is computed by the worker for that, and answered by another; a
// prompt that is short, or mostly held where it is answered, is not. Each goes to the data-parallel rank that holds it. Everything
// is journaled, and balances.
func TestPrefillApartFromDecode(t *testing.T) {
	t.Parallel()
	const head = `
endpoints: [{name: aside}, {name: pool, routing: {split: {min_tokens: 100}}}]
models: [{name: cheap, endpoint: %s}]
teams: [{name: t1, models: [cheap]}]
`
	u := ownUp(t, "split", upOptions{policy: newPolicy(strings.Replace(fmt.Sprintf(head, "aside"), ", {name: pool, routing: {split: {min_tokens: 100}}}", "", 1),
		map[string]string{"main": "team: t1"}), workers: 1})
	u.policy.setHead(strings.TrimSpace(fmt.Sprintf(head, "pool")))
	if err := u.write(u.policy.yaml()); err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]string{"p1": "prefill", "d1": "decode"} {
		u.beside(t, name, command("worker", "-name", name, "-endpoint", "pool", "-role", role, "-ranks", "2", "-dir", u.dir, "-rates", ratesFile(t),
			"-doors", "unix:"+filepath.Join(u.dir, "run", "fleet.sock"), "-join-token-file", filepath.Join(u.dir, "run", "join-token")))
	}
	u.opsSays(t, "/readyz", "ok   endpoint pool: 2 workers can be picked")

	ask := func(prompt string, legs int) (admission string) {
		t.Helper()
		body := fmt.Sprintf(`{"model":"cheap","max_tokens":4,"messages":[{"role":"user","content":%q}]}`, prompt)
		admission = u.ok(t, post(u.key("main"), "/v1/chat/completions", body)).admission()
		e := u.ledger.await(t, admission, "served and usage", func(e entry) bool { return len(e.usage) == 1 && len(e.served) >= legs })
		if len(e.served) != legs {
			t.Errorf("%d served records, want %d: %v", len(e.served), legs, e.served)
		}
		for _, r := range e.served {
			want, tokens := "d1", int64(4)
			if strings.HasSuffix(r.Id, "/prefill") {
				want, tokens = "p1", 1
			}
			if r.Worker != want || r.GetCompletionTokens() != tokens || r.GetPromptTokens() != e.usage[0].GetPromptTokens() || r.Outcome != "complete" {
				t.Errorf("served %v", r)
			}
		}
		return admission
	}
	// at is what the engine says that answered, and whether the prompt came from another.
	at := func(admission string, transferred bool) account {
		t.Helper()
		for _, a := range u.accounts(t)[admission] {
			if a.Generated == 4 {
				if a.Transferred != transferred {
					t.Errorf("of another engine: %v, want %v: %+v", a.Transferred, transferred, a)
				}
				return a
			}
		}
		t.Fatalf("no engine answered %s", admission)
		return account{}
	}
	long := func(s string) string { return strings.Repeat(s+" goes on and on. ", 100) }
	a, b := at(ask(long("The first"), 2), true), at(ask(long("Another one"), 2), true)
	if a.Rank == b.Rank {
		t.Errorf("both went to rank %d", a.Rank)
	}
	for _, before := range []struct {
		account
		prompt string
	}{{a, long("The first")}, {b, long("Another one")}} {
		if again := at(ask(before.prompt, 1), false); again.Rank != before.Rank || again.Cached < before.Prompt*8/10 {
			t.Errorf("%+v goes on as %+v", before.account, again)
		}
	}
	ask("Short.", 1)
	reconciles(t, 0, 0, "-settle", "0s", "-dir", u.dir)
}
