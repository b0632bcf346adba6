package flight

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spokegate/spokegate/openai"
)

// random facts, one part, two or none.
func randomFacts(rng *rand.Rand) (f Facts) {
	flip := func(n int) bool { return rng.IntN(n) == 0 }
	if flip(2) {
		f.Metered = &Metered{
			Report: randomReport(rng),
			Status: []int{0, 200, 200, 500}[rng.IntN(4)], SawEnd: flip(2), Refused: flip(6),
		}
	}
	if flip(2) {
		f.Logged = &Logged{
			Status: []int{0, 200, 200, 503}[rng.IntN(4)], ClientCut: flip(3), UpstreamCut: flip(5), NoUpstream: flip(6), Timeout: flip(8),
			Served: []string{"", "w"}[rng.IntN(2)],
		}
	}
	if flip(8) {
		f.Lost = "envoy_gone"
	}
	return f
}

func randomReport(rng *rand.Rand) openai.Report {
	flip := func(n int) bool { return rng.IntN(n) == 0 }
	r := openai.Report{CountedFrom: "none"}
	if !flip(3) {
		r = counted(int64(rng.IntN(900))-1, int64(rng.IntN(900))-1, int64(rng.IntN(900))-1)
	}
	r.Terminal, r.Failed, r.UpstreamCut = flip(2), flip(5), flip(8)
	return r
}

// oracle is what a slow and obvious reading of the rules expects of one admission.
type oracle struct {
	facts    []Facts // told so far
	opened   bool
	openedAt time.Time
	endedAt  time.Time // zero: not ended
	done     bool      // usage was written
	bookings []*booking
	reserved int64 // in quotas; 0: it counts in none
	passed   *Metered
}

func (o *oracle) lost(why string, now time.Time) {
	o.facts, o.endedAt = append(o.facts, Facts{Lost: why}), now
}

// last is what is known when it is journaled: of what is lost, what has passed counts, if nobody knows better by then.
func (o *oracle) last() Facts {
	all := o.first()
	if all.Lost != "" && all.Metered == nil {
		all.Metered = o.passed
	}
	return all
}

// loseAll ends all that is open, before the door stops.
func loseAll(r *rig, world map[string]*oracle) {
	for _, o := range world {
		if o.opened && o.endedAt.IsZero() {
			o.lost(doorStopped, r.clock())
		}
	}
}

func pass(r *rig, o *oracle, id string, m *Metered) {
	if o.opened && o.endedAt.IsZero() && m != nil {
		o.passed = m
	}
	r.Passed(id, m)
}

func (o *oracle) first() (all Facts) {
	for _, f := range o.facts {
		all.merge(f)
	}
	return all
}

// ask opens a flight, which ends at once when facts were early or the table is closed. A second ask changes nothing.
func ask(t *testing.T, r *rig, o *oracle, id string) {
	t.Helper()
	again := o.opened
	if !again {
		early := o.first()
		o.opened, o.openedAt = true, r.clock()
		if early.conclusive() || r.core.closed {
			o.endedAt = o.openedAt
		}
	}
	h := hold(id)
	if o.reserved > 0 {
		h = quotas(id, o.reserved)
	}
	if r.openWith(id, "key", h) == again {
		t.Fatalf("%s: opened before: %v, and opened now: %v", id, again, !again)
	}
}

func tell(r *rig, o *oracle, id string, f Facts) {
	if !o.done && !f.empty() {
		o.facts = append(o.facts, f)
		if all := o.first(); o.opened && o.endedAt.IsZero() && all.conclusive() {
			o.endedAt = r.clock()
		}
	}
	r.End(id, f)
}

func lose(r *rig, world map[string]*oracle) {
	now := r.clock()
	for _, o := range world {
		if o.opened && o.endedAt.IsZero() && o.openedAt.Before(now) {
			o.lost("envoy_gone", now)
		}
	}
	r.Lose(now, "envoy_gone")
}

// check holds after every event.
func check(t *testing.T, seed uint64, r *rig, world map[string]*oracle) {
	t.Helper()
	for id, o := range world {
		admitted, used := len(r.of(id, "admitted")), len(r.of(id, "usage"))
		if wantAdmitted := count01(o.opened); admitted != wantAdmitted || used > wantAdmitted {
			t.Fatalf("seed %d: %s: opened %v, %d admitted, %d usage", seed, id, o.opened, admitted, used)
		}
		over := o.opened && !o.endedAt.IsZero()
		all := o.first()
		waits := o.reserved > 0 && !all.settled() && !r.core.closed && r.clock().Sub(o.endedAt) < settleWait
		if n := r.freed(id); n > 1 || !over && n > 0 || over && !waits && n == 0 {
			t.Fatalf("seed %d: %s: ended %v, waits for counts %v, lease freed %d times", seed, id, over, waits, n)
		}
		for i, b := range o.bookings {
			if want := count01(over || i < len(o.bookings)-1); b.released != want {
				t.Fatalf("seed %d: %s: booking %d of %d, ended %v, released %d times", seed, id, i+1, len(o.bookings), over, b.released)
			}
		}
	}
}

// ledger checks that what was reserved is either settled, once, or stands, and returns what stands.
func ledger(t *testing.T, seed uint64, r *rig, world map[string]*oracle) (standing int64) {
	t.Helper()
	var reserved, settled int64
	for id, o := range world {
		if !o.opened {
			continue
		}
		reserved += o.reserved
		list := r.settled(id)
		if len(list) == 0 {
			standing += o.reserved
			continue
		}
		switch used := list[0]; {
		case o.reserved == 0:
		case used.Tokens < 0:
			settled += o.reserved
		case used.Unserved && used.Tokens > 0:
			t.Fatalf("seed %d: %s: nobody served it, and it used %d tokens", seed, id, used.Tokens)
		default:
			settled += used.Tokens
		}
	}
	of := func(c *prometheus.CounterVec) int64 { return int64(testutil.ToFloat64(c.WithLabelValues("model"))) }
	if m := r.core.metrics; of(m.reserved) != reserved || of(m.settled) != settled {
		t.Fatalf("seed %d: metrics say %d reserved and %d settled, want %d and %d", seed, of(m.reserved), of(m.settled), reserved, settled)
	}
	return standing
}

func count01(b bool) int {
	if b {
		return 1
	}
	return 0
}
