package limitstest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

// oracle says what a limiter must say, from nothing but the list of all that was ever admitted.
type oracle struct {
	passed map[string][]time.Time     // when each request passed, by limit
	until  map[string]time.Time       // expiry of open admissions
	leases map[string]map[string]bool // admissions by limit
	known  map[string]bool            // admissions whose first answer must be repeated
	holds  map[string]limits.Hold
	counts map[string][]*count // what passed limits with quotas, by limit
	open   map[string][]*count // of open admissions
}

func newOracle() *oracle {
	return &oracle{map[string][]time.Time{}, map[string]time.Time{}, map[string]map[string]bool{}, map[string]bool{}, map[string]limits.Hold{},
		map[string][]*count{}, map[string][]*count{}}
}

// rateAllows is the meaning of GCRA without its trick: from any earlier request on, no more than the burst and what the
// time since then brings.
func (o *oracle) rateAllows(now time.Time, l policy.Limit) bool {
	interval := time.Duration(float64(time.Second)/l.RequestsPerSecond + 0.5)
	past := o.passed[l.ID]
	for i, at := range past {
		withThis := len(past) - i + 1
		if time.Duration(withThis-l.Burst)*interval > now.Sub(at) {
			return false
		}
	}
	return true
}

func (o *oracle) allows(now time.Time, ls []policy.Limit) bool {
	for _, l := range ls {
		if l.RequestsPerSecond > 0 && !o.rateAllows(now, l) {
			return false
		}
		if l.Concurrency > 0 && len(o.leases[l.ID]) >= l.Concurrency {
			return false
		}
	}
	return true
}

func (o *oracle) acquire(now time.Time, admission string, tokens int64, ls []policy.Limit) bool {
	o.expire(now)
	if o.known[admission] {
		return true
	}
	if !o.allows(now, ls) || !o.quotasAllow(now, tokens, ls) {
		return false
	}
	o.known[admission], o.until[admission] = true, now.Add(TTL)
	for _, l := range ls {
		if l.RequestsPerSecond > 0 {
			o.passed[l.ID] = append(o.passed[l.ID], now)
		}
		if l.Concurrency > 0 {
			if o.leases[l.ID] == nil {
				o.leases[l.ID] = map[string]bool{}
			}
			o.leases[l.ID][admission] = true
		}
	}
	o.reserve(now, admission, tokens, ls)
	return true
}

func (o *oracle) expire(now time.Time) {
	for a, until := range o.until {
		if !now.Before(until) {
			o.release(a)
			delete(o.known, a)
		}
	}
}

func (o *oracle) release(admission string) {
	delete(o.until, admission)
	delete(o.open, admission)
	for _, set := range o.leases {
		delete(set, admission)
	}
}

// asOracle lives through random histories beside the oracle: several limits at once, admissions asked twice, renewals,
// releases, lost releases, concurrency limits and quotas that change from ask to ask, nights and months without a request.
func asOracle(t *testing.T, w *world) {
	o, r := newOracle(), rand.New(rand.NewPCG(7, 11))
	rates := []policy.Limit{rate("a", 3, 4), rate("b", 0.5, 1), rate("c", 50, 20)}
	steps := []time.Duration{0, 0, 0, time.Millisecond, 20 * time.Millisecond, 333333333, 400 * time.Millisecond, 2 * time.Second, TTL / 3}
	var story []string
	for i := range 6000 {
		w.wait(steps[r.IntN(len(steps))])
		if r.IntN(300) == 0 {
			w.wait(time.Duration(r.IntN(20*24)+1) * time.Hour)
			o.expire(w.now)
			clear(o.known)
		}
		old := fmt.Sprint("r", max(0, i-r.IntN(8)))    // may have expired
		recent := fmt.Sprint("r", max(0, i-r.IntN(3))) // at most 40 s ago: its first answer is still known
		admission, got, want := old, "", ""
		switch r.IntN(6) {
		case 0:
			used := anyUse(r)
			w.settle(o.holds[admission], used)
			o.expire(w.now)
			o.settle(admission, used)
			o.release(admission)
			got = fmt.Sprintf("released %+v", used)
			want = got
		case 1:
			got, want = fmt.Sprint("renewed ", w.renewed(w.now, o.holds[admission])), fmt.Sprint("renewed ", o.renew(w.now, admission))
		case 2:
			admission = "look"
			got, want = fmt.Sprint(w.used(wide("q1")), w.used(wide("q2"))), fmt.Sprint(o.used(w.now, wide("q1")), o.used(w.now, wide("q2")))
		default:
			admission = recent
			ls, tokens := append(someOf(r, rates), someQuotas(r)...), int64(r.IntN(400))
			d := w.asTokens(admission, tokens, ls...)
			got, want = fmt.Sprint("admitted ", d.Admitted), fmt.Sprint("admitted ", o.acquire(w.now, admission, tokens, ls))
			if d.Admitted {
				o.holds[admission] = d.Hold
			}
		}
		story = append(story, fmt.Sprintf("%s %s: %s", w.now.Format("01-02 15:04:05.999999999"), admission, got))
		if got != want {
			t.Fatalf("oracle says %s\n%s", want, strings.Join(story[max(0, i-15):], "\n"))
		}
	}
}

func (o *oracle) renew(now time.Time, admission string) bool {
	o.expire(now)
	_, open := o.until[admission]
	if open {
		o.until[admission] = now.Add(TTL)
	}
	return open
}

func someOf(r *rand.Rand, rates []policy.Limit) []policy.Limit {
	var ls []policy.Limit
	for _, l := range rates {
		if r.IntN(2) == 0 {
			ls = append(ls, l)
		}
	}
	for _, id := range []string{"x", "y"} {
		if r.IntN(2) == 0 {
			ls = append(ls, places(id, 1+r.IntN(5)))
		}
	}
	return ls
}
