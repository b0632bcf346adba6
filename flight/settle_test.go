package flight

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
)

// passing is a meter at work.
type passing openai.Report

func (p passing) Report() openai.Report { return openai.Report(p) }

// counted is a report of an engine; below 0: it does not say.
func counted(prompt, cached, completion int64) openai.Report {
	known := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	return openai.Report{CountedFrom: "engine", Usage: openai.Usage{Prompt: known(prompt), Cached: known(cached), Completion: known(completion)}}
}

func metered(status int, end bool, r openai.Report) *Metered {
	return &Metered{Status: status, SawEnd: end, Report: r, At: time.Unix(1_700_000_005, 0)}
}

const worker = "10.0.0.2:8000"

// step is something that is told of a flight, and with what its hold has been released after that.
type step struct {
	facts Facts
	after time.Duration // that passes first
	want  []limits.Used
}

func TestSettle(t *testing.T) {
	used := func(n int64) []limits.Used { return []limits.Used{{Tokens: n}} }
	var standing, unserved = used(-1), []limits.Used{{Unserved: true}}
	ok, cut := &Logged{Status: 200, Served: worker}, &Logged{Status: 200, Served: worker, ClientCut: true}
	failure := &Logged{Status: 500, Served: worker}
	for name, c := range map[string]struct {
		passing openai.Report // what the meter has counted before any fact
		steps   []step
	}{
		"the meter saw all: at once": {steps: []step{{facts: Facts{Metered: metered(200, true, counted(100, 40, 7))}, want: used(100 - 30 + 7)},
			{facts: Facts{Logged: ok}, want: used(77)}}},
		"the log comes first, and the meter in a moment": {steps: []step{{facts: Facts{Logged: ok}},
			{after: 200 * time.Millisecond, facts: Facts{Metered: metered(200, true, counted(100, 0, 7))}, want: used(107)}}},
		"the client left: by what has passed, and not when the meter is let go": {passing: counted(100, 100, 5), steps: []step{{facts: Facts{Logged: cut}},
			{after: 250 * time.Millisecond, want: used(25 + 5)},
			{after: 3 * time.Second, facts: Facts{Metered: metered(200, false, counted(100, 100, 6))}, want: used(30)}}},
		"the client left before anything was counted": {steps: []step{{facts: Facts{Logged: cut}}, {after: 250 * time.Millisecond, want: standing}}},
		"the client left while a worker was asked":    {steps: []step{{facts: Facts{Logged: &Logged{Served: worker, ClientCut: true}}, want: standing}}},
		"the client left before a worker was asked":   {steps: []step{{facts: Facts{Logged: &Logged{ClientCut: true}}, want: unserved}}},
		"the meter is away":                           {steps: []step{{facts: Facts{Logged: ok}}, {after: 250 * time.Millisecond, want: standing}}},
		"counted by events": {steps: []step{{facts: Facts{Metered: metered(200, true, openai.Report{Events: 3, CountedFrom: "events",
			Usage: counted(-1, -1, 3).Usage})}, want: used(1003)}}},
		"the engine says nothing of usage": {steps: []step{{facts: Facts{Metered: metered(200, true, openai.Report{CountedFrom: "none", Terminal: true})}, want: standing}}},
		"refused by the shim":              {steps: []step{{facts: Facts{Metered: &Metered{Status: 503, SawEnd: true, Refused: true}}, want: unserved}}},
		"no worker was found": {steps: []step{{facts: Facts{Metered: metered(503, true, openai.Report{CountedFrom: "none"})}},
			{facts: Facts{Logged: &Logged{Status: 503, Served: worker, NoUpstream: true}}, want: unserved}}},
		"no worker was asked": {steps: []step{{facts: Facts{Logged: &Logged{Status: 503, NoUpstream: true}}, want: unserved}}},
		"the engine answers with an error": {steps: []step{{facts: Facts{Metered: metered(500, true, openai.Report{CountedFrom: "none", Failed: true})}},
			{facts: Facts{Logged: failure}, want: used(0)}}},
		"the engine answers with an error, and the meter is away": {steps: []step{{facts: Facts{Logged: failure}}, {after: 250 * time.Millisecond, want: used(0)}}},
		"the worker broke off": {steps: []step{{facts: Facts{Logged: &Logged{Status: 200, Served: worker, UpstreamCut: true},
			Metered: metered(200, false, counted(100, 0, 3))}, want: used(103)}}},
		"the worker broke off before it said anything": {steps: []step{{facts: Facts{Metered: metered(503, true, openai.Report{CountedFrom: "none"})}},
			{facts: Facts{Logged: &Logged{Status: 503, Served: worker, UpstreamCut: true}}, want: standing}}},
		"Envoy is gone":             {passing: counted(100, 0, 4), steps: []step{{facts: Facts{Lost: "envoy_gone"}}, {after: 250 * time.Millisecond, want: used(104)}}},
		"more cached than there is": {steps: []step{{facts: Facts{Metered: metered(200, true, counted(4, 1<<40, 1))}, want: used(2)}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(Config{})
			r.openWith("a", "key", quotas("a", 500))
			r.FirstByte("a", worker, r.clock(), passing(c.passing))
			for i, s := range c.steps {
				r.pass(s.after)
				r.End("a", s.facts)
				if got := r.settled("a"); !slices.Equal(got, s.want) {
					t.Errorf("step %d: released with %+v, want %+v", i+1, got, s.want)
				}
			}
			want := c.steps[len(c.steps)-1].want
			r.pass(time.Minute)
			r.Close(context.Background())
			if got := r.settled("a"); !slices.Equal(got, want) {
				t.Errorf("in the end: released with %+v, want %+v", got, want)
			}
		})
	}
}

// What is open or not settled when the door stops is settled by what has passed, and so is an orphan.
func TestSettleAtTheLast(t *testing.T) {
	want := []limits.Used{{Tokens: 105}}
	r := newRig(Config{Orphan: time.Minute})
	for _, id := range []string{"open", "ended", "orphan"} {
		r.openWith(id, "key", quotas(id, 500))
		r.FirstByte(id, worker, r.clock(), passing(counted(100, 0, 5)))
	}
	r.End("orphan", Facts{Metered: metered(200, false, counted(100, 0, 5))})
	r.pass(59 * time.Second)
	if n := r.freed("orphan"); n != 0 {
		t.Errorf("the orphan was released %d times too early", n)
	}
	r.pass(time.Second)
	if got := r.settled("orphan"); !slices.Equal(got, want) {
		t.Errorf("the orphan was released with %+v", got)
	}
	r.End("ended", Facts{Logged: &Logged{Status: 200, Served: worker, ClientCut: true}})
	r.Close(context.Background())
	for _, id := range []string{"open", "ended"} {
		if got := r.settled(id); !slices.Equal(got, want) {
			t.Errorf("%s was released with %+v", id, got)
		}
	}
	r.openWith("after", "key", quotas("after", 500))
	if got := r.settled("after"); !slices.Equal(got, []limits.Used{{Tokens: -1}}) {
		t.Errorf("one that came after was released with %+v", got)
	}
}

// A hold without quotas has nothing to wait for.
func TestLeasesAreFreedAtOnce(t *testing.T) {
	r := newRig(Config{})
	r.open("a")
	r.End("a", Facts{Logged: &Logged{Status: 200, Served: worker, ClientCut: true}})
	if r.freed("a") != 1 {
		t.Errorf("released %d times", r.freed("a"))
	}
}

// What counts in quotas alone is renewed too, or the store would forget what is to be settled.
func TestQuotasAreRenewed(t *testing.T) {
	r := newRig(Config{LeaseEvery: time.Second})
	r.openWith("quotas", "key", limits.Hold{Admission: "quotas", Quotas: []string{"q"}})
	r.openWith("nothing", "key", limits.Hold{Admission: "nothing"})
	r.pass(time.Second)
	if r.renewed["quotas"] != 1 || r.renewed["nothing"] != 0 {
		t.Errorf("renewed %v", r.renewed)
	}
}

func TestTokenMetrics(t *testing.T) {
	r := newRig(Config{Registerer: prometheus.NewRegistry()})
	for id, report := range map[string]openai.Report{
		"below": counted(100, 0, 100), "above": counted(600, 0, 40), "unknown": {CountedFrom: "none", Terminal: true},
	} {
		r.openWith(id, "key", quotas(id, 500))
		r.End(id, Facts{Metered: metered(200, true, report)})
	}
	r.open("without quotas")
	r.End("without quotas", Facts{Metered: metered(200, true, counted(9, 0, 9))})
	r.openWith("still open", "key", quotas("still open", 500))
	m := r.core.metrics
	for name, c := range map[string]struct {
		of   *prometheus.CounterVec
		want float64
	}{"reserved": {m.reserved, 2000}, "settled": {m.settled, 200 + 640 + 500}, "overshoot": {m.overshoot, 140}, "unsettled": {m.unsettled, 1}} {
		if got := testutil.ToFloat64(c.of.WithLabelValues("model")); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
