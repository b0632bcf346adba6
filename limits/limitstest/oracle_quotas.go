package limitstest

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

const toMinute = "2006-01-02 15:04"

// count is one request in one limit with quotas. What it used may become known after its period is over; as the oracle adds
// up by the time of admission, that changes nothing of a later one.
type count struct {
	at       string // to the minute: a period is what begins alike
	requests int64
	tokens   int64
}

func (o *oracle) quotasAllow(now time.Time, tokens int64, ls []policy.Limit) bool {
	for _, l := range ls {
		used := o.used(now, l)
		for i, q := range quotasOf(l) {
			takes := tokens
			if !q.tokens {
				takes = 1
			}
			if used[i]+takes > q.max {
				return false
			}
		}
	}
	return true
}

func (o *oracle) reserve(now time.Time, admission string, tokens int64, ls []policy.Limit) {
	for _, l := range ls {
		if len(quotasOf(l)) > 0 {
			c := &count{now.Format(toMinute), 1, tokens}
			o.counts[l.ID] = append(o.counts[l.ID], c)
			o.open[admission] = append(o.open[admission], c)
		}
	}
}

func (o *oracle) settle(admission string, used limits.Used) {
	for _, c := range o.open[admission] {
		if used.Tokens >= 0 {
			c.tokens = used.Tokens
		}
		if used.Unserved {
			c.requests = 0
		}
	}
}

// used adds up what passed in the period of each of a limit's quotas.
func (o *oracle) used(now time.Time, l policy.Limit) (used []int64) {
	for _, q := range quotasOf(l) {
		sum, period := int64(0), now.Format(toMinute)[:q.period]
		for _, c := range o.counts[l.ID] {
			if strings.HasPrefix(c.at, period) {
				if q.tokens {
					sum += c.tokens
				} else {
					sum += c.requests
				}
			}
		}
		used = append(used, sum)
	}
	return used
}

type oneQuota struct {
	max    int64
	period int // how much of a moment names it
	tokens bool
}

func quotasOf(l policy.Limit) (qs []oneQuota) {
	for _, q := range []oneQuota{
		{l.TokensPerMinute, len(toMinute), true},
		{l.RequestsPerDay, len("2006-01-02"), false}, {l.TokensPerDay, len("2006-01-02"), true},
		{l.RequestsPerMonth, len("2006-01"), false}, {l.TokensPerMonth, len("2006-01"), true},
	} {
		if q.max > 0 {
			qs = append(qs, q)
		}
	}
	return qs
}

// wide is a limit that has all quotas, and of each more than enough.
func wide(id string) policy.Limit {
	return quota(id, func(l *policy.Limit) {
		l.TokensPerMinute, l.RequestsPerDay, l.TokensPerDay, l.RequestsPerMonth, l.TokensPerMonth = 1e9, 1e9, 1e9, 1e9, 1e9
	})
}

func someQuotas(r *rand.Rand) (ls []policy.Limit) {
	some := func(from ...int64) int64 { return from[r.IntN(len(from))] }
	for _, id := range []string{"q1", "q2"} {
		ls = append(ls, quota(id, func(l *policy.Limit) {
			l.TokensPerMinute = some(0, 0, 600, 1500)
			l.RequestsPerDay, l.TokensPerDay = some(0, 0, 0, 200, 600), some(0, 0, 0, 20_000, 60_000)
			l.RequestsPerMonth, l.TokensPerMonth = some(0, 0, 0, 500, 1500), some(0, 0, 0, 50_000, 150_000)
		}))
	}
	return ls
}

func anyUse(r *rand.Rand) limits.Used {
	return limits.Used{Tokens: []int64{-1, 0, int64(r.IntN(100)), int64(r.IntN(800))}[r.IntN(4)], Unserved: r.IntN(4) == 0}
}
