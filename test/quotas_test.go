package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/spokegate/spokegate/usage"
)

const (
	agentTokens = 1500 // of a day or a minute, of each key of an agent
	outputMost  = 1024 // what is reserved for an answer at most, where the policy says nothing
)

// agentAsk asks for much more than it will get, as agents do.
const agentAsk = `{"model":"cheap","max_tokens":64000,"messages":[{"role":"user","content":"Hello"}]}`

// awayFromMidnight waits where a day is about to turn, which would give back what was used.
func awayFromMidnight() {
	if left := 24*time.Hour - time.Since(time.Now().UTC().Truncate(24*time.Hour)); left < 3*time.Minute {
		time.Sleep(left)
	}
}

// keyUsage is the answer to GET /v1/usage.
type keyUsage struct {
	Object, Key, Team string
	At                int64
	Limits            []keyLimit
}

type keyLimit struct {
	Level, Owner, Kind   string
	Model                *string
	Max, Used, Remaining int64
	Reset                float64 `json:"reset_seconds"`
	Period               *int64  `json:"period_start"`
}

func (u *up) keyUsage(t testing.TB, key string) keyUsage {
	t.Helper()
	r := u.ok(t, get(u.key(key), "/v1/usage"))
	var k keyUsage
	if err := json.Unmarshal(r.body, &k); err != nil {
		t.Fatalf("%v in %v", err, r)
	}
	return k
}

// used is what a key has used of its own limit of a kind.
func (u *up) used(t testing.TB, key, kind string) int64 {
	t.Helper()
	k := u.keyUsage(t, key)
	for _, l := range k.Limits {
		if l.Kind == kind && l.Owner == key {
			return l.Used
		}
	}
	t.Fatalf("%s has no limit of %s: %+v", key, kind, k)
	return 0
}

// becomesUsed waits until a key has used so much.
func (u *up) becomesUsed(t testing.TB, key, kind string, want int64) error {
	t.Helper()
	return within(journalPatience, func() error {
		if got := u.used(t, key, kind); got != want {
			return fmt.Errorf("%s: want %d of %s used, got %d", key, want, kind, got)
		}
		return nil
	})
}

// left is what a response says of the limit on requests or tokens that binds.
func (r reply) left(of string, max int) (remaining int64, err error) {
	limit := r.header.Get("X-Ratelimit-Limit-" + of)
	remaining, err = strconv.ParseInt(r.header.Get("X-Ratelimit-Remaining-"+of), 10, 64)
	reset, wrong := time.ParseDuration(r.header.Get("X-Ratelimit-Reset-" + of))
	if err = errors.Join(err, wrong); err != nil || limit != strconv.Itoa(max) || remaining < 0 || reset < 0 {
		return 0, fmt.Errorf("headers of %s, of which there are %d: %w in %v", of, max, err, r)
	}
	return remaining, nil
}

// TestTokensPerDay lets an agent ask for 64,000 tokens and use ten, again and again. Only what runs counts in full.
func TestTokensPerDay(t *testing.T) {
	t.Parallel()
	awayFromMidnight()
	eachPicker(t, func(t *testing.T, picker string) { agentStory(t, attached(t, picker)) })
}

func agentStory(t *testing.T, u *up) {
	ask := func() reply {
		return u.do(t, post(u.key("agent"), "/v1/chat/completions", agentAsk, field{caseHeader, casePrefix + "agent"}))
	}
	remains := func(r reply, status int, want int64) {
		t.Helper()
		if left, err := r.left("Tokens", agentTokens); err != nil || r.status != status || left != want {
			t.Fatalf("want %d and %d tokens left, got %d (%v): %v", status, want, left, err, r)
		}
	}
	first := ask()
	left, err := first.left("Tokens", agentTokens)
	prompt := agentTokens - outputMost - left // as estimated
	if err != nil || first.status != http.StatusOK || prompt < 2 || prompt > 20 {
		t.Fatalf("want at most %d tokens reserved for an answer and a few for the prompt, got %d left (%v): %v", outputMost, left, err, first)
	}
	if r := first.header.Get("X-Ratelimit-Limit-Requests"); r != "" {
		t.Errorf("there is no limit on requests, and x-ratelimit-limit-requests is %s", r)
	}
	if err := u.becomesUsed(t, "agent", "tokens_per_day", 10); err != nil { // what the engine said
		t.Fatal(err)
	}

	running := startsAgent(t, u, "agent")
	left = agentTokens - 10 - outputMost - prompt
	remains(reply{status: running.resp.StatusCode, header: running.resp.Header}, http.StatusOK, left)
	if err := running.until(`"content"`, 2); err != nil {
		t.Fatal(err)
	}
	refused := ask()
	remains(refused, http.StatusTooManyRequests, left)
	wantUsedUp(t, refused)
	u.ledger.refused(refused.admission())
	other := u.do(t, post(u.key("agent"), "/v1/messages", agentAsk))
	wantRefusal(t, other, "/v1/messages", http.StatusTooManyRequests, "insufficient_quota")

	running.cut()
	rec := u.ledger.usage(t, running.admission())
	if rec.GetOutcome() != usage.OutcomeClientCut || rec.PromptTokens != nil || rec.GetCompletionTokens() != 2 {
		t.Errorf("a stream of two tokens that its client left is journaled as %s", usage.AppendJSON(nil, rec))
	}
	// The engine said nothing of the prompt, so that its estimate stands.
	if err := u.becomesUsed(t, "agent", "tokens_per_day", 10+prompt+2); err != nil {
		t.Fatal(err)
	}
	remains(ask(), http.StatusOK, left-prompt-2)
}

// startsAgent opens a stream of a key for which most of its tokens are reserved: two come, and it goes on.
func startsAgent(t *testing.T, u *up, key string) *stream {
	t.Helper()
	label := casePrefix + "agent/" + key
	u.engine.plays(label, script{chunks: []string{saysA, saysB}, end: "client"})
	s, err := u.openStream(t.Context(), post(u.key(key), "/v1/chat/completions", streamed(agentAsk), field{caseHeader, label}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.cut)
	return s
}

// TestTokensPerMinute has one request take most of a minute's tokens: the next is told to wait until the minute turns. One that
// turns meanwhile gives everything back; then it is done again.
func TestTokensPerMinute(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := attached(t, picker)
		eventually(t, 2*factPatience, func() error {
			running := startsAgent(t, u, "hasty")
			defer running.cut()
			head := reply{status: running.resp.StatusCode, header: running.resp.Header}
			if head.status != http.StatusOK {
				return errors.New("what ran before is not settled yet")
			}
			if _, err := head.left("Tokens", agentTokens); err != nil {
				t.Fatal(err)
			}
			if reset, _ := time.ParseDuration(head.header.Get("X-Ratelimit-Reset-Tokens")); reset <= 0 || reset > time.Minute {
				t.Errorf("a minute turns within %v", reset)
			}
			refused := u.do(t, post(u.key("hasty"), "/v1/chat/completions", agentAsk, field{caseHeader, casePrefix + "agent"}))
			other := u.do(t, post(u.key("hasty"), "/v1/messages", agentAsk, field{caseHeader, casePrefix + "agent"}))
			if refused.status == http.StatusOK || other.status == http.StatusOK {
				return errors.New("a minute turned meanwhile")
			}
			u.ledger.refused(refused.admission())
			if err := errors.Join(checkTokensRefusal(refused), checkRefusal(other, "/v1/messages", "")); err != nil || other.status != http.StatusTooManyRequests {
				t.Fatalf("%v; for Anthropic's clients: %v", err, other)
			}
			return nil
		})
		checkAboveLimit(t, u)
	})
}

// checkTokensRefusal wants a refusal that a client waits for: until the minute turns, at most.
func checkTokensRefusal(r reply) error {
	if err := checkRefusal(r, "", "rate_limit_exceeded"); err != nil {
		return err
	}
	var body struct{ Error struct{ Type string } }
	err := json.Unmarshal(r.body, &body)
	s, wrong := strconv.Atoi(r.header.Get("Retry-After"))
	ms, wrong2 := strconv.Atoi(r.header.Get("Retry-After-Ms"))
	if err = errors.Join(err, wrong, wrong2); err != nil || body.Error.Type != "tokens" || s < 1 || s > 60 || ms < 1 || ms > 60_000 || r.header.Get("X-Should-Retry") == "false" {
		return fmt.Errorf("want to be told of tokens, and to come again within a minute (%w): %v", err, r)
	}
	return nil
}

// checkAboveLimit asks for more than a minute ever has: to come again is no use.
func checkAboveLimit(t *testing.T, u *up) {
	t.Helper()
	r := u.do(t, post(u.key("tiny"), "/v1/chat/completions", agentAsk))
	if err := checkOpenAI(r, "rate_limit_exceeded"); err != nil || r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") != "" || r.header.Get("X-Should-Retry") != "false" {
		t.Errorf("a request that is above its limit by itself (%v): %v", err, r)
	}
	u.ledger.refused(r.admission())
}

// TestQuotaOfRequests uses up the requests of a day.
func TestQuotaOfRequests(t *testing.T) {
	t.Parallel()
	awayFromMidnight()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		ask := func() reply { return u.do(t, post(u.key("thrifty"), "/v1/chat/completions", oneToken)) }
		for i := range 2 {
			r := ask()
			if left, err := r.left("Requests", 2); err != nil || r.status != http.StatusOK || left != int64(1-i) {
				t.Fatalf("request %d of 2: %d left (%v): %v", i+1, left, err, r)
			}
		}
		for range 2 {
			r := ask()
			wantUsedUp(t, r)
			if left, err := r.left("Requests", 2); err != nil || left != 0 {
				t.Errorf("%d left (%v)", left, err)
			}
			u.ledger.refused(r.admission())
		}
		for _, kind := range []string{"requests_per_day", "requests_per_month"} {
			if n := u.used(t, "thrifty", kind); n != 2 {
				t.Errorf("two passed and two were refused, and %d of %s are used", n, kind)
			}
		}
	})
}

// wantUsedUp wants a refusal that no client repeats.
func wantUsedUp(t testing.TB, r reply) {
	t.Helper()
	wantRefusal(t, r, "", http.StatusTooManyRequests, "insufficient_quota")
	if r.header.Get("X-Should-Retry") != "false" || r.header.Get("Retry-After") != "" || r.header.Get("Retry-After-Ms") != "" {
		t.Fatalf("a client would come again: %v", r)
	}
}

// TestCutIsSettled leaves a stream midway: the tokens that passed count, not those that were reserved, and the place is free.
func TestCutIsSettled(t *testing.T) {
	t.Parallel()
	awayFromMidnight()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		held := fill(t, u, "cutter", 1)[0]
		if err := held.until("data:", 7); err != nil {
			t.Fatal(err)
		}
		if n := u.used(t, "cutter", "tokens_per_day"); n <= outputMost {
			t.Errorf("while it runs, %d tokens are reserved", n)
		}
		wantRefusal(t, u.do(t, post(u.key("cutter"), "/v1/chat/completions", oneToken)), "", http.StatusTooManyRequests, "concurrency_limit_exceeded")
		held.cut()
		rec := u.ledger.usage(t, held.admission())
		seen, most := rec.GetPromptTokens()+7, rec.GetPromptTokens()+rec.GetCompletionTokens()
		if rec.GetOutcome() != usage.OutcomeClientCut || rec.GetPromptTokens() < 1 || most < seen {
			t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
		}
		eventually(t, journalPatience, func() error {
			if n := u.used(t, "cutter", "tokens_per_day"); n < seen || n > most {
				return fmt.Errorf("want %d to %d tokens used, got %d", seen, most, n)
			}
			return nil
		})
		eventually(t, journalPatience, func() error {
			if r := u.do(t, post(u.key("cutter"), "/v1/chat/completions", oneToken)); r.status != http.StatusOK {
				return fmt.Errorf("the place is not free: %v", r)
			}
			return nil
		})
	})
}
