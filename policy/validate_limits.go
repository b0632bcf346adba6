package policy

import (
	"fmt"
	"time"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// Bounds of what a policy may ask for. They keep every later calculation far from overflow.
const (
	MaxRate   = 1e6                 // requests a second
	MinRate   = 1e-5                // about one a day
	MaxCount  = 1_000_000           // burst, concurrency
	MaxRefill = 31 * 24 * time.Hour // until a used-up burst is full again
	MaxWeight = 1000.0              // overlap weight, temperature
	MinBlock  = 8                   // bytes of a block
	MaxBlock  = 64 << 10
	// MaxQuota bounds quotas of a minute, day or month. Redis counts in floating point, which is exact up to 2^53: with
	// quotas below 2^50, the sum of what is used, what is reserved and what a request asks for stays there.
	MaxQuota  = 1_000_000_000_000_000
	defOutput = 1024
	defCached = 1.0
)

// eachLimits checks the limits of one owner, who may ask for some models by name.
func (c *checker) eachLimits(owner any, path string, limits []*policyv1.Limit, asks func(name string) bool) {
	seen := map[string]bool{}
	for i, l := range limits {
		c.limit(l, fmt.Sprintf("%s.limits[%d]", path, i))
		c.roomForOne(l, fmt.Sprintf("%s.limits[%d]", path, i), asks)
		// Two limits of one owner and model would share a counter.
		if seen[l.GetModel()] {
			what := "all models together"
			if l.GetModel() != "" {
				what = "model " + quote(l.GetModel())
			}
			c.add(l, fmt.Sprintf("%s.limits[%d]", path, i), "", -1, "a second limit for %s; write both as one", what)
		}
		seen[l.GetModel()] = true
	}
}

func (c *checker) limit(l *policyv1.Limit, path string) {
	if l.GetModel() != "" && !c.models[l.GetModel()] {
		c.add(l, path, "model", -1, "there is no model %s", quote(l.GetModel()))
	}
	quotas := c.quotas(l, path)
	if l.RequestsPerSecond == nil && l.Burst == nil && l.Concurrency == nil && quotas == 0 {
		c.add(l, path, "", -1, "limits nothing; want requests_per_second, concurrency, tokens_per_minute, or requests or tokens per_day or per_month")
	}
	c.rate(l, path)
	if l.Concurrency != nil {
		c.count(l, path, "concurrency", l.GetConcurrency())
	}
}

// quotas is how many there are.
func (c *checker) quotas(l *policyv1.Limit, path string) (n int) {
	for _, q := range []struct {
		field string
		value *uint64
	}{
		{"tokens_per_minute", l.TokensPerMinute},
		{"requests_per_day", l.RequestsPerDay}, {"tokens_per_day", l.TokensPerDay},
		{"requests_per_month", l.RequestsPerMonth}, {"tokens_per_month", l.TokensPerMonth},
	} {
		if q.value == nil {
			continue
		}
		n++
		if *q.value < 1 || *q.value > MaxQuota {
			c.add(l, path, q.field, -1, "want a whole number from 1 to %d; to let nothing pass, revoke the key or take the model out", uint64(MaxQuota))
		}
	}
	return n
}

func (c *checker) rate(l *policyv1.Limit, path string) {
	rate := l.GetRequestsPerSecond()
	ok := rate >= MinRate && rate <= MaxRate // false for NaN
	if l.RequestsPerSecond != nil && !ok {
		c.add(l, path, "requests_per_second", -1, "want from %.5f to %.0f; to let nothing pass, revoke the key or take the model out", MinRate, MaxRate)
	}
	if l.Burst == nil {
		return
	}
	switch {
	case l.RequestsPerSecond == nil:
		c.add(l, path, "burst", -1, "means nothing without requests_per_second")
	case c.count(l, path, "burst", l.GetBurst()) && ok && float64(l.GetBurst())/rate > MaxRefill.Seconds():
		c.add(l, path, "burst", -1, "at this rate it would take more than 31 days to be full again; want a smaller burst or a higher rate")
	}
}

func (c *checker) count(l any, path, field string, n uint32) bool {
	ok := n >= 1 && n <= MaxCount
	if !ok {
		c.add(l, path, field, -1, "want a whole number from 1 to %d", MaxCount)
	}
	return ok
}
