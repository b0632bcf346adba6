package flight

import (
	"math"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/usage"
)

// settleWait is how long an ended flight that counts in quotas keeps its hold for what would say how much it used. Both halves
// of the facts come together, or, where a meter counts, within milliseconds of each other, except where a client left: there the
// meter's come seconds later, and the meter is asked for what has passed.
const settleWait = 250 * time.Millisecond

// Meter counts a response that is passing.
type Meter interface {
	// Report says what has passed so far. It is safe for concurrent use, and must not call the table.
	Report() openai.Report
}

// bill is what there is to know for settling a hold.
type bill struct {
	hold     limits.Hold
	model    string
	prompt   int64   // estimated
	cached   float64 // weight of a cached token
	unserved bool    // no worker took it
	failed   bool    // the worker's answer was an error
	report   *openai.Report
	meter    Meter // asked where there is no report; nil: none
}

// bill of an ended flight. sure says that nothing that may still come would change it.
func (f *flight) bill() (b bill, sure bool) {
	a := &f.admission
	m, l := f.known()
	outcome, _ := Outcome(m, l)
	b = bill{hold: f.hold, model: a.Model, prompt: a.PromptEstimate, cached: a.CachedWeight, failed: outcome == usage.OutcomeUpstreamError, meter: f.meter}
	b.unserved = outcome == usage.OutcomeNotServed || l != nil && l.Served == "" && (m == nil || m.Status == 0)
	if m != nil {
		b.report = &m.Report
		sure = m.Refused || succeeded(m, l) && (m.SawEnd || m.Report.Terminal)
	}
	return b, sure || f.facts.settled()
}

// used is what counts. What nobody reported is estimated: a prompt by what was reserved for it, an answer by the events that
// passed. Where nothing is known at all the reservation stands, unless the answer was an error.
func (b *bill) used() limits.Used {
	if b.unserved {
		return limits.Used{Unserved: true}
	}
	r := b.report
	if r == nil && b.meter != nil {
		so := b.meter.Report()
		r = &so
	}
	switch {
	case r != nil && r.CountedFrom != "" && r.CountedFrom != usage.CountedNone:
		return limits.Used{Tokens: b.tokens(&r.Usage)}
	case b.failed:
		return limits.Used{}
	}
	return limits.Used{Tokens: -1}
}

func (b *bill) tokens(u *openai.Usage) int64 {
	n := b.prompt
	if u.Prompt != nil {
		n = *u.Prompt
	}
	if u.Cached != nil {
		n -= int64(math.Round((1 - b.cached) * float64(min(*u.Cached, n))))
	}
	if u.Completion != nil {
		n += *u.Completion
	}
	return max(n, 0)
}

// settle frees the hold of an ended flight, now or, where it is worth it, a little later. force: now.
func (c *core) settle(f *flight, now time.Time, force bool) (free []freed) {
	if f.settled {
		return nil
	}
	b, sure := f.bill()
	if !sure && !force && len(f.hold.Quotas) > 0 {
		if f.unsettled == nil {
			f.freeBy = now.Add(min(settleWait, c.grace))
			f.unsettled = c.unsettled.PushBack(f)
		}
		return nil
	}
	if f.unsettled != nil {
		c.unsettled.Remove(f.unsettled)
	}
	f.settled, f.unsettled, f.meter = true, nil, nil
	return []freed{{bill: b}}
}

// settleDue settles what has waited long enough, or everything.
func (c *core) settleDue(now time.Time, all bool) (free []freed) {
	for e := c.unsettled.Front(); e != nil && (all || !e.Value.(*flight).freeBy.After(now)); e = c.unsettled.Front() {
		free = append(free, c.settle(e.Value.(*flight), now, true)...)
	}
	return free
}
