package test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

const oneToken = `{"model":"sim-small","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`

func TestRateLimit(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		rateLimit(t, simulated(t, picker))
	})
}

func rateLimit(t *testing.T, u *up) {
	const each = 10_000 * time.Second // of seldom
	began := time.Now()
	// soon wants a time that is told as between so much, when it was asked first, and what is left of that now.
	soon := func(what string, told, most time.Duration) {
		t.Helper()
		if least := most - time.Since(began); told < least-time.Second || told > most {
			t.Errorf("%s: told %v, want between %v and %v", what, told, least, most)
		}
	}
	reset := func(r reply, most time.Duration) {
		t.Helper()
		told, err := time.ParseDuration(r.header.Get("X-Ratelimit-Reset-Requests"))
		if err != nil {
			t.Error(err)
		}
		soon("x-ratelimit-reset-requests", told, most)
	}
	for i := range 3 {
		r := u.ok(t, post(u.key("rated"), "/v1/chat/completions", oneToken))
		if left, limit := r.header.Get("X-Ratelimit-Remaining-Requests"), r.header.Get("X-Ratelimit-Limit-Requests"); left != fmt.Sprint(2-i) || limit == "" {
			t.Errorf("request %d of 3: x-ratelimit-remaining-requests is %q, -limit- %q", i+1, left, limit)
		}
		reset(r, time.Duration(i+1)*each)
	}
	r := u.do(t, post(u.key("rated"), "/v1/chat/completions", oneToken))
	wantRefusal(t, r, "", http.StatusTooManyRequests, "rate_limit_exceeded")
	s, ms := retryAfter(t, r)
	soon("retry-after", s, each)
	soon("retry-after-ms", ms, each)
	if left := r.header.Get("X-Ratelimit-Remaining-Requests"); left != "0" {
		t.Errorf("x-ratelimit-remaining-requests is %q on a refusal", left)
	}
	reset(r, 3*each)
	u.ledger.refused(r.admission())
	anthropic := u.do(t, post(u.key("rated"), "/v1/messages", oneToken))
	wantRefusal(t, anthropic, "/v1/messages", http.StatusTooManyRequests, "")
	u.ok(t, get(u.key("rated"), "/v1/models")) // is not counted
	refills(t, u)
}

// refills: a limit gives back, at one request in five seconds. Who comes too early is told when to come, and passes then; on a
// slow machine the second is not too early.
func refills(t *testing.T, u *up) {
	t.Helper()
	for range 2 {
		r := u.do(t, post(u.key("refilled"), "/v1/chat/completions", oneToken))
		if r.status == http.StatusOK {
			continue
		}
		wantRefusal(t, r, "", http.StatusTooManyRequests, "rate_limit_exceeded")
		s, wait := retryAfter(t, r)
		if wait < time.Millisecond || wait > 5*time.Second || s < wait || s > 5*time.Second {
			t.Errorf("retry-after is %v, retry-after-ms %v, at one request in five seconds", s, wait)
		}
		time.Sleep(wait)
		u.ok(t, post(u.key("refilled"), "/v1/chat/completions", oneToken)) // refusals took nothing
	}
}

// retryAfter is what a refusal says of coming again: in seconds, and exactly.
func retryAfter(t *testing.T, r reply) (seconds, exact time.Duration) {
	t.Helper()
	s, err := strconv.Atoi(r.header.Get("Retry-After"))
	ms, err2 := strconv.Atoi(r.header.Get("Retry-After-Ms"))
	if err := errors.Join(err, err2); err != nil {
		t.Fatalf("%v in %v", err, r)
	}
	return time.Duration(s) * time.Second, time.Duration(ms) * time.Millisecond
}

// TestTeamLimit wants one count for all keys of a team.
func TestTeamLimit(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		u.ok(t, post(u.key("team-a"), "/v1/chat/completions", oneToken))
		u.ok(t, post(u.key("team-b"), "/v1/chat/completions", oneToken))
		r := u.do(t, post(u.key("team-a"), "/v1/chat/completions", oneToken))
		wantRefusal(t, r, "", http.StatusTooManyRequests, "rate_limit_exceeded")
	})
}

// longTokens take the engine minutes: whoever asks for them leaves before.
const longTokens = 100_000

func longBody(subject string) string {
	return fmt.Sprintf(`{"model":"sim-small","max_tokens":%d,"stream":true,"messages":[{"role":"user","content":%q}]}`, longTokens, subject)
}

func TestConcurrencyLimit(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		held := fill(t, u, "slots", 3)
		r := u.do(t, post(u.key("slots"), "/v1/chat/completions", oneToken))
		wantRefusal(t, r, "", http.StatusTooManyRequests, "concurrency_limit_exceeded")
		u.ledger.refused(r.admission())
		held[0].cut()
		eventually(t, factPatience, func() error {
			if r := u.do(t, post(u.key("slots"), "/v1/chat/completions", oneToken)); r.status != http.StatusOK {
				return fmt.Errorf("the place of a client that left is not free: %v", r)
			}
			return nil
		})
		for _, s := range held {
			s.cut()
		}
	})
}

// fill opens n long streams of a key and wants that all of them run.
func fill(t *testing.T, u *up, key string, n int) []*stream {
	t.Helper()
	var held []*stream
	for i := range n {
		s, err := u.openStream(context.WithoutCancel(t.Context()), post(u.key(key), "/v1/chat/completions", longBody(fmt.Sprintf("%s %d", key, i))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.cut)
		if s.resp.StatusCode != http.StatusOK {
			t.Fatalf("place %d of %d is not to be had: %d", i+1, n, s.resp.StatusCode)
		}
		if err := s.until("data:", 1); err != nil {
			t.Fatal(err)
		}
		held = append(held, s)
	}
	return held
}

// TestPolicyChange adds a key, revokes it, breaks the file and mends it, while requests run.
func TestPolicyChange(t *testing.T) {
	t.Parallel()
	u := ownUp(t, "policy", upOptions{policy: simPolicy(), rates: ratesFile(t), workers: 1})
	try := func(key string) int { return u.do(t, get(u.key(key), "/v1/models")).status }
	becomes := func(key string, status int) {
		t.Helper()
		eventually(t, factPatience, func() error {
			if got := try(key); got != status {
				return fmt.Errorf("%s: want %d, got %d", key, status, got)
			}
			return nil
		})
	}
	running := fill(t, u, "main", 1)[0]
	u.policy.set("new", "team: t1")
	if got := try("new"); got != 401 {
		t.Fatalf("a key that is in no policy yet gets %d", got)
	}
	u.rewrite(t, u.policy.yaml())
	becomes("new", 200)
	good := u.policy.yaml()

	u.rewrite(t, strings.Replace(good, "team: t1", "team: nobody", 1))
	u.opsSays(t, "/readyz", "refused")
	if try("new") != 200 || try("main") != 200 {
		t.Error("the last good policy does not go on after a bad one")
	}
	if page := u.page(t, "/readyz"); !strings.Contains(page, "nobody") || !strings.Contains(page, "p.yaml:") {
		t.Errorf("the refusal does not say what and where: %s", page)
	}
	u.rewrite(t, "") // an editor that writes in two steps
	u.opsSays(t, "/readyz", "empty")
	if try("new") != 200 {
		t.Error("an empty file took effect")
	}
	u.policy.set("new", "team: t1, revoked: true")
	u.rewrite(t, u.policy.yaml())
	becomes("new", 401)
	if page := u.page(t, "/readyz"); strings.Contains(page, "refused") {
		t.Errorf("a good policy does not take the refusal away: %s", page)
	}
	if err := running.until("data:", 5); err != nil {
		t.Errorf("a running stream did not survive the changes: %v", err)
	}
	running.cut()
}
