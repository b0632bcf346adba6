package router

import (
	"fmt"
	"math"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// shedAt is the share of each threshold at which a worker is busy for what is sheddable: so that there is room left for the rest
// when load rises.
const shedAt = 0.8

// use is what busy thresholds are held against.
type use struct {
	decode  float64 // share of the device's blocks; 0 where neither its size is known nor a report fresh
	prefill float64 // tokens that wait
	queue   float64 // requests that wait
	device  float64 // blocks; 0: not known
}

// use of a worker. With a fresh report that tells it the share in use is what it says, and what is still to be prefilled comes to it: prompts
// that share blocks count these once in the device, and in bookings each time.
func (w *worker) use(now time.Time, how *policy.Routing, others load) use {
	u := use{device: w.device(how.BlockBytes), queue: float64(w.load.waiting + others.waiting)}
	u.prefill = float64((w.load.prefill + others.prefill) * how.BlockBytes / tokenBytes)
	switch told := w.heard.told(now) && w.heard.CacheUsed > 0; {
	case told && u.device > 0:
		u.decode = w.heard.CacheUsed + float64(w.load.prefill)/u.device
	case told:
		u.decode = w.heard.CacheUsed
	case u.device > 0:
		u.decode = float64(w.load.decode) / u.device
	}
	return u
}

// threshold is one that a worker is beyond.
type threshold uint8

const (
	notBusy threshold = iota
	decodeShare
	prefillTokens
	queue
)

// beyond says which threshold is reached, or a share of it. One of 0 never is.
func (u use) beyond(most policy.Busy, share float64) threshold {
	switch {
	case most.DecodeShare > 0 && u.decode >= most.DecodeShare*share:
		return decodeShare
	case most.PrefillTokens > 0 && u.prefill >= float64(most.PrefillTokens)*share:
		return prefillTokens
	case most.Queue > 0 && u.queue >= float64(most.Queue)*share:
		return queue
	}
	return notBusy
}

// say tells a threshold in words; empty: none.
func (u use) say(t threshold, most policy.Busy) string {
	switch t {
	case decodeShare:
		return fmt.Sprintf("decode share %.2f of %g", u.decode, most.DecodeShare)
	case prefillTokens:
		return fmt.Sprintf("prefill tokens %g of %d", u.prefill, most.PrefillTokens)
	case queue:
		return fmt.Sprintf("queue %g of %d", u.queue, most.Queue)
	}
	return ""
}

// How soon a client may try again.
const (
	retryLeast = time.Second
	retryMost  = 30 * time.Second
)

// pace is how fast the load of all workers together fell lately.
type pace struct {
	since        time.Time
	done, before drained
	rate         drained // a second, over the last whole window; or half of what it was before it, if that is more
	known        bool
}

// drained is what has left: blocks that were prefilled, requests that had their first byte, blocks in use that were let go.
type drained struct{ prefill, begun, freed float64 }

// A pace is measured over paceWindow at least, and one over more than paceGap says nothing: nobody asked meanwhile.
const (
	paceWindow = 2 * time.Second
	paceGap    = 10 * time.Second
)

// tick begins a new window, if the present one is long enough.
func (p *pace) tick(now time.Time) {
	if p.since.IsZero() {
		p.since = now
		return
	}
	t := now.Sub(p.since)
	if t < paceWindow {
		return
	}
	rate := func(done, before, last float64) float64 { return math.Max((done-before)/t.Seconds(), last/2) }
	p.rate = drained{
		rate(p.done.prefill, p.before.prefill, p.rate.prefill), rate(p.done.begun, p.before.begun, p.rate.begun),
		rate(p.done.freed, p.before.freed, p.rate.freed),
	}
	p.known = t < paceGap
	p.since, p.before = now, p.done
}

// note that a request's load has become another.
func (p *pace) note(was, is load) {
	l := was.above(is)
	p.done.prefill += float64(l.prefill)
	p.done.begun += float64(l.waiting)
	p.done.freed += math.Max(float64(was.blocks()-is.blocks()), 0)
}

// retry is when a worker that is used so should be below all thresholds, one of n that the pace is of. It is infinite where
// nothing moves.
func (p *pace) retry(u use, how *policy.Routing, share float64, n int) (seconds float64) {
	until := func(is, most, unit, rate float64) {
		if most > 0 && is >= most*share {
			seconds = math.Max(seconds, math.Max((is-most*share)*unit, 1)*float64(n)/rate)
		}
	}
	until(u.decode, how.Busy.DecodeShare, u.device, p.rate.freed)
	until(u.prefill, float64(how.Busy.PrefillTokens), tokenBytes/float64(how.BlockBytes), p.rate.prefill)
	until(u.queue, float64(how.Busy.Queue), 1, p.rate.begun)
	return seconds
}

// busy is the error where all candidates are: when the first of them should not be any more.
func (r *Router) busy(cs []candidate, how *policy.Routing, share float64) error {
	e := &BusyError{RetryAfter: retryLeast, Sheddable: share < 1}
	if !r.pace.known {
		return e
	}
	soonest := math.Inf(1)
	for i := range cs {
		w := cs[i].w
		u := w.use(r.clock, how, w.others(r.clock, how.BlockBytes, r.missing))
		soonest = math.Min(soonest, r.pace.retry(u, how, share, len(r.byName)))
	}
	e.RetryAfter = max(retryLeast, time.Duration(math.Ceil(math.Min(soonest, retryMost.Seconds())))*time.Second)
	return e
}

// shareFor is the share of each threshold that counts for an ask.
func shareFor(sheddable bool) float64 {
	if sheddable {
		return shedAt
	}
	return 1
}
