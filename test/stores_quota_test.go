package test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	crowd        = 200 // requests at once, half of them at each door
	tenRequests  = 10  // a day, of key "ten"
	budgetTokens = 560 // a day, of key "budget": for about ten of fiftyTokens
)

// fiftyTokens is a request for fifty, with a short prompt.
var fiftyTokens = strings.Replace(oneToken, `"max_tokens":1`, `"max_tokens":50`, 1)

// answered is a reply of one of the doors.
type answered struct {
	by *up
	reply
}

// crowds sends all requests at once. Those that were refused must have been told that the quota is used up.
func (s stores) crowds(t *testing.T, key, body string) (passed []answered) {
	t.Helper()
	replies := make([]answered, crowd)
	failed := make([]error, crowd)
	var clients sync.WaitGroup
	for i := range crowd {
		clients.Go(func() {
			u := s.ups[i%2]
			ctx, cancel := context.WithTimeout(context.Background(), 2*callPatience)
			defer cancel()
			r, err := protocols[i/2%2].send(ctx, u.listen, post(u.key(key), "/v1/chat/completions", body))
			replies[i], failed[i] = answered{u, r}, err
		})
	}
	clients.Wait()
	for i, r := range replies {
		switch {
		case failed[i] != nil:
			t.Error(failed[i])
		case r.status == http.StatusOK:
			passed = append(passed, r)
		default:
			wantUsedUp(t, r.reply)
			r.by.ledger.refused(r.admission())
		}
	}
	return passed
}

// sameUsed is what a key has used of a kind, as all doors tell it.
func (s stores) sameUsed(t *testing.T, key, kind string) (used int64) {
	t.Helper()
	eventually(t, journalPatience, func() error {
		used = s.ups[0].used(t, key, kind)
		if other := s.ups[1].used(t, key, kind); other != used {
			return fmt.Errorf("one door tells of %d of %s used, the other of %d", used, kind, other)
		}
		return nil
	})
	return used
}

// settlesAt waits until the counter is what the usage records say.
func (s stores) settlesAt(t *testing.T, key, kind string, want int64) {
	t.Helper()
	for _, u := range s.ups {
		if err := u.becomesUsed(t, key, kind, want); err != nil {
			t.Errorf("%s: %v", u.name, err)
		}
	}
}

// requestsAcrossDoors has ten of two hundred pass, no more and no fewer.
func (s stores) requestsAcrossDoors(t *testing.T) {
	awayFromMidnight()
	passed := s.crowds(t, "ten", oneToken)
	if len(passed) != tenRequests {
		t.Errorf("%d of %d passed a quota for %d", len(passed), crowd, tenRequests)
	}
	for _, r := range passed {
		r.by.ledger.usage(t, r.admission())
	}
	s.settlesAt(t, "ten", "requests_per_day", int64(len(passed)))
}

// tokensAcrossDoors has as many pass as the estimates of their tokens allow.
func (s stores) tokensAcrossDoors(t *testing.T) {
	awayFromMidnight()
	u := s.ups[0]
	alone := u.ok(t, post(u.key("budget"), "/v1/chat/completions", fiftyTokens))
	left, err := alone.left("Tokens", budgetTokens)
	if err != nil {
		t.Fatal(err)
	}
	reserved := budgetTokens - left
	rec := u.ledger.usage(t, alone.admission())
	each := rec.GetPromptTokens() + rec.GetCompletionTokens()
	s.settlesAt(t, "budget", "tokens_per_day", each)

	passed := append(s.crowds(t, "budget", fiftyTokens), answered{u, alone})
	n, least, most := int64(len(passed)), budgetTokens/max(each, reserved), 1+(budgetTokens-reserved)/min(each, reserved)
	t.Logf("%d tokens are reserved for a request, and %d used: %d passed", reserved, each, n)
	if n < least || n > most {
		t.Errorf("%d passed; of %d tokens, %d to %d should", n, budgetTokens, least, most)
	}
	sum := int64(0)
	for _, r := range passed {
		rec := r.by.ledger.usage(t, r.admission())
		sum += rec.GetPromptTokens() + rec.GetCompletionTokens()
	}
	if over := n * max(0, each-reserved); sum > budgetTokens+over {
		t.Errorf("%d of %d tokens were used; estimates were wrong by %d", sum, budgetTokens, over)
	}
	s.settlesAt(t, "budget", "tokens_per_day", sum)
	wantUsedUp(t, u.do(t, post(u.key("budget"), "/v1/chat/completions", fiftyTokens)))
}

// look waits until each door has told Redis twice more that it is there: when it does, it looks at the counters, and trusts
// what it saw the next time. s.looked tells.
func (s stores) look(ctx context.Context) {
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.redis.Socket})
	defer c.Close()
	last, came := map[string]float64{}, map[string]int{}
	s.looked <- within(factPatience, func() error {
		doors, err := c.ZRangeWithScores(ctx, "{spokegate:local}:doors", 0, -1).Result()
		twice := 0
		for _, d := range doors {
			name := d.Member.(string)
			if last[name] != 0 && last[name] != d.Score {
				came[name]++
			}
			if last[name] = d.Score; came[name] >= 2 {
				twice++
			}
		}
		if twice < len(s.ups) {
			return fmt.Errorf("the doors told Redis %v times that they are there (%v)", came, err)
		}
		return nil
	})
}
