package limits

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
)

// Counters is how many counters are stored.
func (m *Memory) Counters() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.counters.all) != len(m.counters.byID) {
		panic("the list and the map of counters differ")
	}
	return len(m.counters.all)
}

// Admissions is how many admissions are stored.
func (m *Memory) Admissions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open.len+m.released.len != len(m.holdings) {
		panic("the queues and the map of holdings differ")
	}
	return len(m.holdings)
}

// GoByNow makes it go by the now of each call instead of Redis's clock. Its keys live an hour longer, as real time passes
// while now stands still.
func (r *Redis) GoByNow() {
	r.givenTime = true
	r.setSlack(time.Hour)
}

// Errors is how many calls of a kind have failed.
func (r *Redis) Errors(op string) float64 {
	return testutil.ToFloat64(r.metrics.errors.WithLabelValues(op))
}

// Client is the client in use.
func (r *Redis) Client() redis.UniversalClient { return r.client }

// ReadDecision reads a reply of Redis, ParseLimits what AppendLimits writes.
var (
	ReadDecision = decision
	ParseLimits  = parseLimits
	AppendLimits = appendLimits
)

// Attempt is the number of a new ask.
func (r *Redis) Attempt() int64 { return r.attempt(time.Now()) }

// AcquireAs brings an ask to Redis under a number, whenever that was given.
func (r *Redis) AcquireAs(ctx context.Context, ask Ask, attempt int64) (Decision, error) {
	return r.acquire(ctx, time.Now(), ask, attempt)
}

// Asks is how many asks wait for others to come back, and whether any is on its way.
func (r *Redis) Asks() (waiting int, busy bool) {
	r.asks.mu.Lock()
	defer r.asks.mu.Unlock()
	return len(r.asks.waiting), r.asks.busy
}

// GiveUp gives an ask up.
func (r *Redis) GiveUp(ask Ask, attempt int64) { r.giveUp(time.Now(), ask, attempt) }

// Leases is how many leases are held of a limit, expired ones too.
func (r *Redis) Leases(ctx context.Context, id string) int64 {
	return r.client.ZCard(ctx, r.leases(id)).Val()
}

// InFlight gives the leases of this door by limit ID, wherever they are counted.
func (f *Fallback) InFlight() map[string]int { return f.local.InFlight() }

// Local is this door's own memory.
func (f *Fallback) Local() *Memory { return f.local }

// Known gives the last known totals of a limit's month, requests and tokens.
func (f *Fallback) Known(id string) string {
	f.ledger.mu.Lock()
	defer f.ledger.mu.Unlock()
	start, _ := Month.Bounds(time.Now())
	return fmt.Sprint(f.ledger.known[totalKey{id, RequestsPerMonth, start}], f.ledger.known[totalKey{id, TokensPerMonth, start}])
}
