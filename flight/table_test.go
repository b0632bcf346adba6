package flight

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
)

// One flight from yes to end, and both of its records in full.
func TestFlight(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(Config{Registerer: registry})
	b := &booking{}
	if !r.open("a") || r.open("a") {
		t.Fatal("opened wrongly")
	}
	if !r.Book("a", b) || r.Book("x", b) {
		t.Fatal("booked wrongly")
	}
	r.FirstByte("a", "10.0.0.1:8000", time.Unix(1_700_000_001, 0), nil)
	if b.serving != "10.0.0.1:8000" || b.begun != 1 || r.Len() != 1 || testutil.ToFloat64(r.core.metrics.open) != 1 {
		t.Errorf("%+v", b)
	}
	r.End("a", Facts{Metered: whole()})
	if b.released != 1 || r.freed("a") != 1 || len(r.of("a", "usage")) != 0 || r.Book("a", b) {
		t.Errorf("after the first fact: booking %+v, lease freed %d", b, r.freed("a"))
	}
	r.End("a", Facts{Logged: ended()})
	r.End("a", Facts{Logged: ended(), Metered: whole()}) // late: changes nothing

	admitted := &usagev1.Record{
		Id: "a/admitted", Kind: "admitted", Admission: "a", Key: "key", Team: "team", Model: "model", Endpoint: "endpoint", Spoke: "spoke",
		Revision: 3, Operation: "chat", ClientRequestId: "mine", Stream: true, RequestBytes: proto.Int64(100),
		AdmittedAt: &timestamppb.Timestamp{Seconds: 1_700_000_000},
	}
	used := proto.CloneOf(admitted)
	used.Id, used.Kind, used.Worker, used.Attempt = "a/usage", "usage", "10.0.0.2:8000", 2
	used.PromptTokens, used.CachedTokens, used.CompletionTokens = proto.Int64(7), proto.Int64(4), proto.Int64(0)
	used.CountedFrom, used.Outcome, used.Status = "engine", "complete", proto.Uint32(200)
	used.RequestBytes, used.ResponseBytes = proto.Int64(101), proto.Int64(51)
	used.FirstByteAt, used.EndedAt = &timestamppb.Timestamp{Seconds: 1_700_000_001}, &timestamppb.Timestamp{Seconds: 1_700_000_006}
	if diff := cmp.Diff([]*usagev1.Record{admitted, used}, r.records, protocmp.Transform()); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	want := `
# HELP spokegate_flight_anomalies_total Things to look into at the end of flights, by anomaly.
# TYPE spokegate_flight_anomalies_total counter
spokegate_flight_anomalies_total{anomaly="late"} 1
# HELP spokegate_flight_ended_total Usage records written, by outcome.
# TYPE spokegate_flight_ended_total counter
spokegate_flight_ended_total{outcome="complete"} 1
# HELP spokegate_flights_open Admissions that have not ended and hold their leases and bookings.
# TYPE spokegate_flights_open gauge
spokegate_flights_open 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"spokegate_flight_anomalies_total", "spokegate_flight_ended_total", "spokegate_flights_open"); err != nil {
		t.Error(err)
	}
}

// Where no response of a worker began there is nothing to meter: the log alone is all, and no anomaly.
func TestLogOfNoAnswerIsAll(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(Config{Registerer: registry})
	for id, l := range map[string]Logged{
		"left while a worker was asked": {ClientCut: true, Served: "10.0.0.2:8000"}, "left before": {ClientCut: true}, "no worker": {Status: 503, NoUpstream: true},
	} {
		r.open(id)
		r.End(id, Facts{Logged: &l})
		if rec := r.one(t, id, "usage"); len(rec.Anomalies) != 0 || rec.CountedFrom != "none" || rec.CompletionTokens != nil {
			t.Errorf("%s: %v", id, rec)
		}
		r.End(id, Facts{Metered: &Metered{}}) // nothing passed: not late, for it is known
	}
	if n := testutil.CollectAndCount(r.core.metrics.anomalies); n != 0 {
		t.Errorf("%d anomalies counted", n)
	}
}

func TestGrace(t *testing.T) {
	r := newRig(Config{Grace: 2 * time.Second})
	r.open("a")
	r.End("a", Facts{})
	if r.freed("a") != 0 {
		t.Error("facts without anything in them ended a flight")
	}
	r.End("a", Facts{Lost: "envoy_gone"})
	r.pass(1999 * time.Millisecond)
	if len(r.of("a", "usage")) != 0 || r.Len() != 1 {
		t.Error("the record did not wait")
	}
	r.End("a", Facts{Metered: whole()}) // what the meter has seen is better than nothing
	got := r.one(t, "a", "usage")
	if got.Outcome != "complete" || got.GetPromptTokens() != 7 || got.Anomalies[1] != "envoy_gone" {
		t.Errorf("%v", got)
	}
}

// The access log of a client that left while it was being admitted comes before the flight.
func TestFactsBeforeTheFlight(t *testing.T) {
	r := newRig(Config{})
	r.End("a", Facts{Logged: &Logged{ClientCut: true}})
	if !r.open("a") {
		t.Fatal("not opened")
	}
	b := &booking{}
	if r.freed("a") != 1 || r.Book("a", b) {
		t.Error("the flight goes on although its request has ended")
	}
	r.pass(time.Minute)
	if got := r.one(t, "a", "usage"); got.Outcome != "client_cut" || r.Len() != 0 {
		t.Errorf("%v", got)
	}
	if r.open("a") || len(r.of("a", "admitted")) != 1 {
		t.Error("an ended admission was opened again")
	}
}

// Unknown admissions are forgotten one by one, so a flood of them takes bounded memory.
func TestRemembersABoundedNumber(t *testing.T) {
	r := newRig(Config{})
	for i := range 3 * remembered {
		r.End(fmt.Sprint("x", i), Facts{Logged: ended()})
	}
	if n := len(r.core.recent.byID); n != remembered {
		t.Errorf("%d are remembered", n)
	}
	r.open("x0") // forgotten
	r.open(fmt.Sprint("x", 3*remembered-1))
	if r.freed("x0") != 0 || r.freed(fmt.Sprint("x", 3*remembered-1)) != 1 {
		t.Error("the wrong one was forgotten")
	}
}

func TestLoseAndClose(t *testing.T) {
	r := newRig(Config{})
	r.open("old")
	r.pass(time.Second)
	moment := r.clock()
	r.open("new")
	if n := r.Lose(moment, "envoy_gone"); n != 1 || r.freed("old") != 1 || r.freed("new") != 0 {
		t.Errorf("%d lost", n)
	}
	r.Close(context.Background())
	r.open("last")
	for _, id := range []string{"old", "new", "last"} {
		got := r.one(t, id, "usage")
		if got.Outcome != "upstream_cut" || r.freed(id) != 1 {
			t.Errorf("%s: %v", id, got)
		}
	}
	if got := r.one(t, "new", "usage").Anomalies; got[2] != doorStopped {
		t.Errorf("%v", got)
	}
	if r.Len() != 0 {
		t.Errorf("%d left", r.Len())
	}
}

// A second booking replaces the first: Envoy follows the latest answer.
func TestBookedTwice(t *testing.T) {
	r := newRig(Config{})
	r.open("a")
	first, second := &booking{}, &booking{}
	if !r.Book("a", first) || !r.Book("a", second) {
		t.Fatal("not booked")
	}
	if first.released != 1 || second.released != 0 {
		t.Errorf("first %d, second %d", first.released, second.released)
	}
	r.End("a", Facts{Logged: ended()})
	r.FirstByte("a", "w", r.clock(), nil)
	if first.released != 1 || second.released != 1 || second.begun != 0 {
		t.Errorf("first %d, second %d", first.released, second.released)
	}
}

func TestClientRequestIDIsCut(t *testing.T) {
	r := newRig(Config{})
	r.Open(Admission{ID: "a", ClientRequestID: strings.Repeat("é", 100) + "x"}, limits.Hold{})
	r.Open(Admission{ID: "b", ClientRequestID: "x" + strings.Repeat("é", 100)}, limits.Hold{})
	if got := r.one(t, "a", "admitted").ClientRequestId; got != strings.Repeat("é", 64) {
		t.Errorf("%q", got)
	}
	if got := r.one(t, "b", "admitted").ClientRequestId; got != "x"+strings.Repeat("é", 63) {
		t.Errorf("%q", got)
	}
}

type counting struct{}

func (counting) Report() openai.Report { return openai.Report{} }

// A meter that Envoy has cut off breaks off while its request runs on: only the log, or its long absence, ends the flight.
func TestBrokenMeterIsNoEnd(t *testing.T) {
	for name, c := range map[string]struct {
		then func(r *rig)
		want string
	}{
		"the log says when":   {func(r *rig) { r.End("a", Facts{Logged: ended()}) }, "complete"},
		"the log never comes": {func(r *rig) { r.pass(time.Hour); r.pass(time.Minute) }, "upstream_cut"},
		"Envoy is gone":       {func(r *rig) { r.pass(time.Second); r.Lose(r.clock(), "envoy_gone") }, "upstream_cut"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(Config{})
			r.open("a")
			broken := whole()
			broken.SawEnd, broken.Report.Terminal = false, false
			r.End("a", Facts{Metered: broken})
			r.pass(time.Minute)
			if r.freed("a") != 0 || len(r.of("a", "usage")) != 0 {
				t.Fatalf("a broken meter ended the flight")
			}
			c.then(r)
			r.pass(time.Minute)
			used := r.of("a", "usage")
			if len(used) != 1 || used[0].GetOutcome() != c.want || used[0].GetPromptTokens() != 7 || r.freed("a") != 1 {
				t.Errorf("records %v, freed %d times", used, r.freed("a"))
			}
			if n := r.core.unseen.Len(); n != 0 {
				t.Errorf("%d flights are still watched", n)
			}
		})
	}
}
