package flight

import (
	"testing"

	"github.com/spokegate/spokegate/openai"
)

// TestBookingLearnsOfTheCache: the engine's cached tokens reach the booking once, in whichever order the facts of the end come,
// and only with a good answer.
func TestBookingLearnsOfTheCache(t *testing.T) {
	cached := int64(48)
	good := &Metered{Status: 200, SawEnd: true, Report: openai.Report{Terminal: true, Usage: openai.Usage{Cached: &cached}}}
	silent := &Metered{Status: 200, SawEnd: true, Report: openai.Report{Terminal: true}}
	bad := &Metered{Status: 500, SawEnd: true, Report: openai.Report{Terminal: true}}
	cut := &Metered{Status: 200, Report: openai.Report{Usage: openai.Usage{Cached: &cached}}}
	log := &Logged{Status: 200, Served: "10.0.0.1:1"}
	for name, c := range map[string]struct {
		facts []Facts
		want  []*int64
	}{
		"meter, log":       {[]Facts{{Metered: good}, {Logged: log}}, []*int64{&cached}},
		"log, meter":       {[]Facts{{Logged: log}, {Metered: good}}, []*int64{&cached}},
		"both":             {[]Facts{{Logged: log, Metered: good}}, []*int64{&cached}},
		"none is reported": {[]Facts{{Metered: silent}, {Logged: log}}, []*int64{nil}},
		"an error":         {[]Facts{{Metered: bad}, {Logged: log}}, nil},
		"a cut":            {[]Facts{{Metered: cut}, {Logged: log}}, nil},
		"the log alone":    {[]Facts{{Logged: log}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(Config{})
			r.open("a")
			b := &booking{}
			r.Book("a", b)
			for _, f := range c.facts {
				r.End("a", f)
			}
			if b.frees() != 1 || len(b.reports) != len(c.want) {
				t.Fatalf("released %d times, told %v", b.frees(), b.reports)
			}
			for i, want := range c.want {
				if got := b.reports[i]; (got == nil) != (want == nil) || got != nil && *got != *want {
					t.Errorf("told %v, want %v", got, want)
				}
			}
		})
	}
}
