package test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
)

// TestKeyUsage asks what a key has used. Asking is free, and tells nothing of others.
func TestKeyUsage(t *testing.T) {
	t.Parallel()
	awayFromMidnight()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		r := u.ok(t, post(u.key("curious"), "/v1/chat/completions", strings.Replace(oneToken, "sim-small", "sim-large", 1)))
		rec := u.ledger.usage(t, r.admission())
		tokens := rec.GetPromptTokens() + rec.GetCompletionTokens()
		if err := u.becomesUsed(t, "curious", "tokens_per_month", tokens); err != nil {
			t.Fatal(err)
		}
		asked := time.Now().Truncate(time.Second)
		k := u.keyUsage(t, "curious")
		if at := time.Unix(k.At, 0); at.Before(asked) || at.After(time.Now()) {
			t.Errorf("asked at %v, it tells of %v", asked, at)
		}
		if k.Object != "usage" || k.Key != "curious" || k.Team != "counted" {
			t.Errorf("got %+v", k)
		}
		day := time.Now().UTC().Truncate(24 * time.Hour)
		month := day.AddDate(0, 0, 1-day.Day())
		want := []wantLimit{
			{"team", "counted", "", "tokens_per_day", 9000, tokens, day},
			{"key", "curious", "", "rate", 5, 1, time.Time{}},
			{"key", "curious", "", "concurrency", 2, 0, time.Time{}},
			{"key", "curious", "", "tokens_per_month", 5000, tokens, month},
			{"key", "curious", "sim-large", "requests_per_day", 7, 1, day},
		}
		for _, w := range want {
			if !w.in(k.Limits) {
				t.Errorf("want %+v among %+v", w, k.Limits)
			}
		}
		if len(k.Limits) != len(want) {
			t.Errorf("want %d limits, got %+v", len(want), k.Limits)
		}
		if plain := u.keyUsage(t, "main"); len(plain.Limits) != 0 || plain.Limits == nil {
			t.Errorf("a key without limits is told %+v", plain)
		}
		keyUsageByClients(t, u)
	})
}

type wantLimit struct {
	level, owner, model, kind string
	max, used                 int64
	period                    time.Time
}

func (w wantLimit) in(list []keyLimit) bool {
	for _, l := range list {
		model, period := "", time.Time{}
		if l.Model != nil {
			model = *l.Model
		}
		if l.Period != nil {
			period = time.Unix(*l.Period, 0).UTC()
		}
		got := wantLimit{l.Level, l.Owner, model, l.Kind, l.Max, l.Used, period}
		if got == w && l.Remaining == l.Max-l.Used && (l.Reset > 0) == (l.Used > 0) {
			return true
		}
	}
	return false
}

// keyUsageByClients asks as an SDK, as Anthropic's clients, and as those who should not.
func keyUsageByClients(t *testing.T, u *up) {
	t.Helper()
	client := u.sdk("curious")
	var k keyUsage
	var raw json.RawMessage
	if err := client.Get(t.Context(), "usage", nil, &raw, option.WithMaxRetries(0)); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &k); err != nil || k.Key != "curious" {
		t.Errorf("the Go SDK is told %s: %v", raw, err)
	}
	r := u.ok(t, call{method: "GET", target: "/v1/usage", fields: []field{{"x-api-key", u.key("curious")}}})
	if err := json.Unmarshal(r.body, &k); err != nil || k.Key != "curious" || r.header.Get("Content-Type") != "application/json" || r.admission() == "" {
		t.Errorf("with x-api-key: %v: %v", err, r)
	}
	u.ledger.refused(r.admission()) // it is no admission
	for name, key := range map[string]string{"unknown": "sk-sg-nothing", "revoked": u.key("old"), "expired": u.key("late")} {
		r := u.do(t, get(key, "/v1/usage"))
		if err := checkRefusal(r, "", "invalid_api_key"); err != nil || r.status != http.StatusUnauthorized {
			t.Errorf("%s: %v in %v", name, err, r)
		}
	}
	posted := u.do(t, post(u.key("curious"), "/v1/usage", `{}`))
	if err := checkRefusal(posted, "", "method_not_allowed"); err != nil || posted.status != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %v in %v", err, posted)
	}
}
