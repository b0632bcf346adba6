package main

import (
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/follow"
)

// TestQuotaHoldsAcrossDoors: what one counts, the other hears of, each kind of quota as it is.
func TestQuotaHoldsAcrossDoors(t *testing.T) {
	var reports [2]follow.Reports
	var doors [2]*door
	for i := range doors {
		d := &door{doorFlags: doorFlags{name: "d"}}
		d.hubUsage(&reports[i])
		d.limiter = inMemory{limits.NewMemory(limits.MemoryConfig{Elsewhere: d.elsewhere})}
		doors[i] = d
	}
	if reports[0].Store == reports[1].Store {
		t.Errorf("two that count for themselves are one store: %s", reports[0].Store)
	}
	now := time.Now()
	l := policy.Limit{ID: "team/1:t/0:", RequestsPerDay: 2, TokensPerDay: 1000, RequestsPerMonth: 50, TokensPerMonth: 5000}
	ask := func(door int, admission string) limits.Decision {
		t.Helper()
		d, err := doors[door].limiter.Acquire(t.Context(), now, limits.Ask{Admission: admission, Limits: []policy.Limit{l}, Tokens: 300})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := ask(0, "a"); !d.Admitted {
		t.Fatal(d)
	}
	used, err := reports[0].Used(t.Context())
	if err != nil || len(used) != 4 {
		t.Fatalf("%v %v", used, err)
	}
	reports[1].Elsewhere("hub", used)
	if d := ask(1, "b"); !d.Admitted || d.Requests.Used != 2 || d.Tokens.Used != 600 {
		t.Errorf("%v", d)
	}
	if d := ask(1, "c"); d.Admitted || d.Binding().Kind != limits.RequestsPerDay {
		t.Errorf("the third of two: %v", d)
	}
	standing, err := doors[1].limiter.Look(t.Context(), now, []policy.Limit{l})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{2, 600, 2, 600} {
		if standing[i].Used != want {
			t.Errorf("%s: %d used, want %d", standing[i].Kind, standing[i].Used, want)
		}
	}
	if used, _ = reports[1].Used(t.Context()); len(used) != 4 || used[0].Used+used[1].Used+used[2].Used+used[3].Used != 2*(1+300) {
		t.Errorf("what was heard is told on: %v", used)
	}
}
