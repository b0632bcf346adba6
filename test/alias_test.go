package test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/usage"
)

const (
	aliasRequests = 240
	// Of them, a quarter goes to one of two targets: 60, and rarely (one time in ten million) more than 36 more or fewer.
	aliasLeast, aliasMost = 24, 96
)

// aliasAsk asks for an alias, with its name where an editor of bytes must not be misled.
const aliasAsk = `{"messages":[{"role":"user","content":"\"model\":\"nick\""}], "model" : "ni\u0063k","seed":9007199254740993}`

// engineNames are what the engine calls the targets.
var engineNames = map[string]string{"cheap": "cheap", "lora": "base/lora-1"}

// TestAlias asks for an alias, which stands for two models by weight.
func TestAlias(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		aliases(t, attached(t, picker))
	})
}

func aliases(t *testing.T, u *up) {
	var mu sync.Mutex
	admissions := map[string]bool{}
	label := casePrefix + "alias"
	var clients sync.WaitGroup
	for client := range 6 {
		clients.Go(func() {
			for range aliasRequests / 6 {
				r := u.doOver(t, protocols[client%2], post(u.key("nick"), "/v1/chat/completions", aliasAsk, field{caseHeader, label}))
				if r.status != http.StatusOK || string(r.body) != plainAnswer {
					t.Errorf("got %v", r)
				}
				mu.Lock()
				admissions[r.admission()] = true
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	targets := aliasRecords(t, u, admissions)
	if n := targets["lora"]; n < aliasLeast || n > aliasMost {
		t.Errorf("a quarter should go to one target; the shares are %v", targets)
	}
	heard := map[string]int{}
	for _, h := range u.engine.got(label) {
		heard[aliasedBody(t, h.body)]++
	}
	for model, name := range engineNames {
		if heard[name] != targets[model] || len(heard) != 2 {
			t.Errorf("%d records are of %s, and the engine was asked for %v", targets[model], model, heard)
		}
	}
	aliasRights(t, u)
}

// aliasRecords wants that what an admission went to follows from its id, and that both journals say so.
func aliasRecords(t *testing.T, u *up, admissions map[string]bool) map[string]int {
	t.Helper()
	if len(admissions) != aliasRequests {
		t.Errorf("%d requests, %d admissions", aliasRequests, len(admissions))
	}
	targets := map[string]int{}
	for id := range admissions {
		want := "cheap"
		if xxh3.HashString(id)%4 == 3 { // weights 3 and 1
			want = "lora"
		}
		rec, served := u.ledger.usage(t, id), u.ledger.served(t, id)
		if rec.GetModel() != want || rec.GetAskedModel() != "nick" || rec.GetKey() != "nick" || rec.GetTeam() != "nicks" || rec.GetEndpoint() != "pool" ||
			rec.GetOutcome() != usage.OutcomeComplete || rec.GetPromptTokens() != 7 || rec.GetCompletionTokens() != 3 || len(rec.GetAnomalies()) > 0 {
			t.Errorf("want %s for nick; the usage record is %s", want, usage.AppendJSON(nil, rec))
		}
		if served.GetModel() != want || served.GetAskedModel() != "nick" || served.GetCompletionTokens() != 3 {
			t.Errorf("want %s for nick; the shim's record is %s", want, usage.AppendJSON(nil, served))
		}
		targets[rec.GetModel()]++
	}
	return targets
}

// aliasedBody gives the model's name in a body of which nothing else may have changed.
func aliasedBody(t *testing.T, body []byte) string {
	t.Helper()
	var q struct{ Model string }
	if err := json.Unmarshal(body, &q); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if want := strings.Replace(aliasAsk, `"ni\u0063k"`, quoted(q.Model), 1); string(body) != want {
		t.Errorf("more than the name was changed: want %s, got %s", want, body)
	}
	return q.Model
}

// aliasRights: who may ask for the alias may ask for nothing else.
func aliasRights(t *testing.T, u *up) {
	t.Helper()
	for _, model := range []string{"cheap", "lora", "dear"} {
		r := u.do(t, post(u.key("nick"), "/v1/chat/completions", `{"model":"`+model+`","messages":[]}`))
		wantRefusal(t, r, "", http.StatusForbidden, "model_not_allowed")
		u.ledger.refused(r.admission())
	}
	wantRefusal(t, u.do(t, post(u.key("main"), "/v1/chat/completions", aliasAsk)), "", http.StatusForbidden, "model_not_allowed")
	wantRefusal(t, u.do(t, post(u.key("nick"), "/v1/chat/completions", `{"model":"base/lora-1","messages":[]}`)), "", http.StatusNotFound, "model_not_found")
	r := u.ok(t, get(u.key("nick"), "/v1/models"))
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal(r.body, &list); err != nil || len(list.Data) != 1 || list.Data[0].ID != "nick" {
		t.Errorf("its models are %v: %v", r, err)
	}
}

// TestAliasContext looks at what the door signs for a worker: a body that names an alias is bound to what it stands for.
func TestAliasContext(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := tapped(t, picker)
		for i := range 8 {
			label := casePrefix + "alias-context/" + jsonNumber(i)
			r := u.ok(t, post(u.key("nick"), "/v1/chat/completions", aliasAsk, field{caseHeader, label}))
			got := once(t, "worker", u.tap.got(label))
			if err := got.judge(r.admission()); err != nil {
				t.Error(err)
			}
			c := got.context
			if c.Asked != "nick" || engineNames[c.Model] == "" || c.EngineName != engineNames[c.Model] || c.Key != "nick" || c.Endpoint != "tap" {
				t.Errorf("the context is %+v", c)
			}
			if string(got.body) != aliasAsk {
				t.Errorf("the door changed the body, which is the shim's to do: %s", got.body)
			}
			if rec := u.ledger.usage(t, r.admission()); rec.GetModel() != c.Model {
				t.Errorf("the context is for %s, the record is %s", c.Model, usage.AppendJSON(nil, rec))
			}
		}
	})
}
