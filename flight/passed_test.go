package flight

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
)

// TestWatchedByTheLog: a flight that no meter sees is given up only when Envoy has been silent about it for long.
func TestWatchedByTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		meter bool
		facts Facts
		runs  bool // Envoy says so every ten minutes
		freed int
	}{
		"the log never comes":          {freed: 1},
		"the log says when":            {facts: Facts{Logged: ended(), Metered: whole()}, freed: 1},
		"a meter sees it, and it runs": {meter: true},
		"Envoy says that it runs":      {runs: true},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", stream ", stream), func(t *testing.T) {
				r := newRig(Config{})
				r.Open(Admission{ID: "a", Op: openai.Chat, Stream: stream, At: r.clock()}, limits.Hold{Admission: "a", Leases: []string{"x"}})
				if c.meter {
					r.FirstByte("a", "w", r.clock(), counting{})
				}
				r.End("a", c.facts)
				for range 7 {
					if r.pass(10 * time.Minute); c.runs {
						r.Passed("a", nil)
					}
				}
				if got := r.freed("a"); got != c.freed {
					t.Errorf("freed %d times, want %d", got, c.freed)
				}
				if n := r.core.unseen.Len(); n != 0 && !c.runs {
					t.Errorf("%d flights are still watched", n)
				}
			})
		}
	}
}

// TestWhatHasPassed counts when Envoy dies, and only then.
func TestWhatHasPassed(t *testing.T) {
	so := func(completion int64) *Metered {
		return &Metered{Report: counted(7, 4, completion), Status: 200, ResponseBytes: 30}
	}
	for name, c := range map[string]struct {
		end        func(r *rig)
		outcome    string
		completion int64
	}{
		"Envoy is gone":          {func(r *rig) { r.Lose(r.clock(), "envoy_gone") }, "upstream_cut", 3},
		"the door stops":         {func(r *rig) { r.Close(context.Background()) }, "upstream_cut", 3},
		"the log knows more":     {func(r *rig) { r.End("a", Facts{Logged: ended(), Metered: so(9)}) }, "complete", 9},
		"the log was read after": {func(r *rig) { r.Lose(r.clock(), "envoy_gone"); r.End("a", Facts{Logged: ended(), Metered: so(9)}) }, "complete", 9},
		"the log comes too late": {func(r *rig) {
			r.Lose(r.clock(), "envoy_gone")
			r.pass(time.Minute)
			r.End("a", Facts{Logged: ended(), Metered: so(9)})
		}, "upstream_cut", 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(Config{})
			r.Passed("a", so(1)) // of a flight that is not open yet
			r.open("a")
			for n := range int64(3) {
				r.pass(time.Second)
				r.Passed("a", so(n+1))
			}
			r.Passed("a", nil)
			c.end(r)
			r.Passed("a", so(20))
			r.pass(time.Minute)
			if got := r.one(t, "a", "usage"); got.Outcome != c.outcome || got.GetCompletionTokens() != c.completion || got.GetPromptTokens() != 7 {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestBegan: a worker's word counts for requests of its endpoint that are open.
func TestBegan(t *testing.T) {
	r, b := newRig(Config{}), &booking{}
	r.open("a")
	r.Book("a", b)
	r.Began("a", "another", "w")
	r.Began("x", "endpoint", "w")
	if b.begun != 0 || b.serving != "" {
		t.Errorf("%+v", b)
	}
	r.Began("a", "endpoint", "w")
	if b.begun != 1 || b.serving != "w" {
		t.Errorf("%+v", b)
	}
	r.End("a", Facts{Logged: ended(), Metered: whole()})
	r.Began("a", "endpoint", "w")
	if got := r.one(t, "a", "usage"); b.begun != 1 || !got.FirstByteAt.AsTime().Equal(ended().FirstByte) {
		t.Errorf("%+v, %v", b, got)
	}
}
