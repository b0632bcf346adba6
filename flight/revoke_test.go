package flight

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A revoked key's open flights are cut until they end, marked once, and say so in their records; others go on.
func TestRevoke(t *testing.T) {
	r := newRig(Config{})
	for i, key := range []string{"good", "bad", "bad", "bad"} {
		r.openFor(fmt.Sprint("a", i), key)
	}
	r.End("a3", Facts{Metered: whole()}) // over before the key was revoked
	asked, cuts := []string{}, []string{}
	revoke := func() int {
		cuts = nil
		return r.Revoke(func(key string) bool { asked = append(asked, key); return key == "bad" },
			func(endpoint, admission string) { cuts = append(cuts, endpoint+" "+admission) })
	}
	if n := revoke(); n != 2 || !slices.Equal(cuts, []string{"endpoint a1", "endpoint a2"}) {
		t.Errorf("%d marked, cut %v", n, cuts)
	}
	if !slices.Equal(asked, []string{"good", "bad"}) {
		t.Errorf("asked about %v", asked)
	}
	r.End("a1", Facts{Metered: cutByShim(), Logged: ended()})
	if n := revoke(); n != 0 || !slices.Equal(cuts, []string{"endpoint a2"}) {
		t.Errorf("again: %d marked, cut %v", n, cuts)
	}
	for i := range 4 {
		r.End(fmt.Sprint("a", i), Facts{Metered: whole(), Logged: ended()})
		rec := r.one(t, fmt.Sprint("a", i), "usage")
		if got, want := slices.Contains(rec.Anomalies, "revoked"), i == 1 || i == 2; got != want {
			t.Errorf("a%d: anomalies %v", i, rec.Anomalies)
		}
	}
	if rec := r.one(t, "a1", "usage"); rec.Outcome != "upstream_cut" {
		t.Errorf("the cut one is %s", rec.Outcome)
	}
}

// cutByShim is what the meter sees of a stream that a shim ended by an error event.
func cutByShim() *Metered {
	m := whole()
	m.Report.Terminal, m.Report.Failed, m.Report.UpstreamCut = false, true, true
	return m
}

func TestAskedModelIsInBothRecords(t *testing.T) {
	r := newRig(Config{})
	r.Open(Admission{ID: "a", Model: "real", AskedModel: strings.Clone("alias"), At: time.Unix(1, 0)}, hold("a"))
	r.open("b")
	for _, id := range []string{"a", "b"} {
		r.End(id, Facts{Metered: whole(), Logged: ended()})
		for _, kind := range []string{"admitted", "usage"} {
			if rec := r.one(t, id, kind); (rec.AskedModel != nil) != (id == "a") || rec.GetAskedModel() != map[string]string{"a": "alias"}[id] {
				t.Errorf("%s, %s: asked for %v", id, kind, rec.AskedModel)
			}
		}
	}
}
