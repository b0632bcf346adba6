// Package limitstest is the suite that every limits.Limiter passes.
//
// It looks at a store only through the interface, with many goroutines and against an oracle that keeps plain lists. A store
// with a clock of its own needs a switch that makes it go by the now it is given, and one that releases in the background a
// Release that waits.
package limitstest

import (
	"fmt"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

// New makes an empty store whose leases live for ttl. It cleans up with t.
type New func(t *testing.T, ttl time.Duration) limits.Limiter

// TTL is the lease time that the suite asks for.
const TTL = time.Minute

// start is when every test begins.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var cases = []struct {
	name string
	run  func(*testing.T, *world)
}{
	{"asks that cannot be judged", badAsks},
	{"no limits", noLimits},
	{"burst, then the sustained rate", burstThenRate},
	{"no double burst at an edge", noDoubleBurst},
	{"the n-th passes, the next does not", nth},
	{"a refusal changes nothing", refusalChangesNothing},
	{"an admission counts once", countsOnce},
	{"a refused admission is judged anew", refusedAgain},
	{"release is idempotent", releaseTwice},
	{"release needs the hold alone", releaseAlone},
	{"leases expire", expire},
	{"renewal keeps and never resurrects", renew},
	{"renewal of many at once", renewMany},
	{"a raised limit helps at once", raised},
	{"a lowered limit holds at once", lowered},
	{"a removed limit is gone at once", removed},
	{"an added limit holds at once", added},
	{"the binding limit", binding},
	{"the clock goes back", clockBack},
	{"the clock leaps", clockLeap},
	{"parallel asks for ten places", parallelPlaces},
	{"parallel asks for one admission", parallelSame},
	{"parallel lives", parallelLives},
	{"tokens are reserved, then settled", reserveAndSettle},
	{"more tokens than reserved", settleAbove},
	{"nobody knows what was used", settleUnknown},
	{"no worker took it", settleUnserved},
	{"settled once", settleTwice},
	{"settled after the period", settleLate},
	{"an orphan's reservation", settleOrphan},
	{"an admission counts once in quotas", quotaOnce},
	{"a request alone above the quota", alone},
	{"parallel asks for a quota of ten", quotaParallel},
	{"parallel lives in a quota", quotaLives},
	{"the edges of minutes, days and months", edges},
	{"the wait for a month's end", monthWait},
	{"what binds of requests and of tokens", quotaBinding},
	{"quotas change", quotaChanges},
	{"a kind of quota is added", quotaKindAdded},
	{"the clock goes back over an edge", quotaClockBack},
	{"the clock leaps over edges", quotaClockLeap},
	{"looking changes nothing", look},
	{"totals are read and raised", rebuild},
	{"as the oracle", asOracle},
}

// Run runs the suite. tick is the smallest step of time that the store can tell.
func Run(t *testing.T, tick time.Duration, newLimiter New) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.run(t, &world{t: t, l: newLimiter(t, TTL), now: start, tick: tick})
		})
	}
}

// world is a store, a time, and short ways to use them.
type world struct {
	t    *testing.T
	l    limits.Limiter
	now  time.Time
	tick time.Duration
	next int
}

func (w *world) wait(d time.Duration) { w.now = w.now.Add(d).Truncate(w.tick) }

// as asks for the named admission.
func (w *world) as(admission string, ls ...policy.Limit) limits.Decision {
	w.t.Helper()
	return w.asTokens(admission, 0, ls...)
}

// asTokens asks for the named admission and reserves so many tokens.
func (w *world) asTokens(admission string, tokens int64, ls ...policy.Limit) limits.Decision {
	w.t.Helper()
	d, err := w.l.Acquire(w.t.Context(), w.now, limits.Ask{Admission: admission, Limits: ls, Tokens: tokens})
	if err != nil {
		w.t.Fatalf("acquire %s: %v", admission, err)
	}
	if d.Admitted != (d.Hold.Admission == admission) {
		w.t.Fatalf("acquire %s: hold %+v does not fit: %s", admission, d.Hold, d)
	}
	return d
}

// ask asks for a new admission.
func (w *world) ask(ls ...policy.Limit) limits.Decision {
	w.t.Helper()
	w.next++
	return w.as(fmt.Sprintf("ask-%d", w.next), ls...)
}

func (w *world) admit(ls ...policy.Limit) limits.Hold {
	w.t.Helper()
	d := w.ask(ls...)
	if !d.Admitted {
		w.t.Fatalf("want admitted, got %s", d)
	}
	return d.Hold
}

func (w *world) refuse(ls ...policy.Limit) limits.Standing {
	w.t.Helper()
	d := w.ask(ls...)
	if d.Admitted || d.Binding() == nil {
		w.t.Fatalf("want refused by a limit, got %s", d)
	}
	return *d.Binding()
}

func (w *world) release(h limits.Hold) {
	w.t.Helper()
	if err := w.l.Release(w.t.Context(), w.now, h, limits.Used{}); err != nil {
		w.t.Fatalf("release: %v", err)
	}
}

// renewed says whether a hold's leases were kept.
func (w *world) renewed(now time.Time, h limits.Hold) bool {
	w.t.Helper()
	lost, err := w.l.Renew(w.t.Context(), now, []limits.Hold{h})
	if err != nil {
		w.t.Errorf("renew: %v", err)
	}
	return len(lost) == 0
}

// exactly checks that n more pass now and not one more, and gives them back where that is possible.
func (w *world) exactly(n int, ls ...policy.Limit) {
	w.t.Helper()
	var holds []limits.Hold
	for i := 0; i < n; i++ {
		d := w.ask(ls...)
		if !d.Admitted {
			w.t.Fatalf("%d of %d passed: %s", i, n, d)
		}
		holds = append(holds, d.Hold)
	}
	if d := w.ask(ls...); d.Admitted {
		w.t.Fatalf("more than %d passed: %s", n, d)
	}
	for _, h := range holds {
		w.release(h)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// rate is a limit of a rate with a burst.
func rate(id string, perSecond float64, burst int) policy.Limit {
	return policy.Limit{Level: policy.TeamLevel, Owner: id, ID: id, RequestsPerSecond: perSecond, Burst: burst}
}

// places is a concurrency limit.
func places(id string, n int) policy.Limit {
	return policy.Limit{Level: policy.KeyLevel, Owner: id, ID: id, Concurrency: n}
}
