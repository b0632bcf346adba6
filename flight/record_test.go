package flight

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
)

func whole() *Metered {
	return &Metered{
		Report: openai.Report{
			Usage: openai.Usage{Prompt: proto.Int64(7), Cached: proto.Int64(4), Completion: proto.Int64(0)}, Terminal: true, CountedFrom: "engine",
		},
		Status: 200, ResponseBytes: 50, SawEnd: true, At: time.Unix(1_700_000_005, 0),
	}
}

func ended() *Logged {
	return &Logged{
		Status: 200, Served: "10.0.0.2:8000", Attempts: 2, RequestBytes: 101, ResponseBytes: 51,
		FirstByte: time.Unix(1_700_000_002, 0), At: time.Unix(1_700_000_006, 0),
	}
}

// What the record says when half of the facts is missing or nobody served.
func TestRecordOfHalfTheFacts(t *testing.T) {
	refused := &Metered{
		Report: openai.Report{Usage: openai.Usage{Completion: proto.Int64(0)}, CountedFrom: "none"}, Status: 503, ResponseBytes: 9, Refused: true,
	}
	cases := []struct {
		name  string
		facts Facts
		want  *usagev1.Record
	}{
		{"meter missing: tokens unknown", Facts{Logged: ended()}, &usagev1.Record{
			Outcome: "complete", CountedFrom: "none", Anomalies: []string{"unmetered"}, Worker: "10.0.0.2:8000", Attempt: 2,
			Status: proto.Uint32(200), RequestBytes: proto.Int64(101), ResponseBytes: proto.Int64(51),
			FirstByteAt: &timestamppb.Timestamp{Seconds: 1_700_000_001}, EndedAt: &timestamppb.Timestamp{Seconds: 1_700_000_006},
		}},
		{"log missing", Facts{Metered: whole()}, &usagev1.Record{
			Outcome: "complete", CountedFrom: "engine", Anomalies: []string{"no_access_log"}, Worker: "10.0.0.1:8000",
			PromptTokens: proto.Int64(7), CachedTokens: proto.Int64(4), CompletionTokens: proto.Int64(0),
			Status: proto.Uint32(200), RequestBytes: proto.Int64(100), ResponseBytes: proto.Int64(50),
			FirstByteAt: &timestamppb.Timestamp{Seconds: 1_700_000_001}, EndedAt: &timestamppb.Timestamp{Seconds: 1_700_000_005},
		}},
		{"lost", Facts{Lost: "envoy_gone"}, &usagev1.Record{
			Outcome: "upstream_cut", CountedFrom: "none", Anomalies: []string{"unmetered", "no_access_log", "envoy_gone"}, Worker: "10.0.0.1:8000",
			RequestBytes: proto.Int64(100),
			FirstByteAt:  &timestamppb.Timestamp{Seconds: 1_700_000_001}, EndedAt: &timestamppb.Timestamp{Seconds: 1_700_000_060},
		}},
		{"refused: no worker, no tokens, no first byte", Facts{Metered: refused, Logged: ended()}, &usagev1.Record{
			Outcome: "not_served", CountedFrom: "none", Attempt: 2, Status: proto.Uint32(200),
			RequestBytes: proto.Int64(101), ResponseBytes: proto.Int64(51), EndedAt: &timestamppb.Timestamp{Seconds: 1_700_000_006},
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(Config{})
			r.open("a")
			r.FirstByte("a", "10.0.0.1:8000", time.Unix(1_700_000_001, 0), nil)
			r.End("a", c.facts)
			r.pass(time.Minute)
			got := r.one(t, "a", "usage")
			if got.Outcome != c.want.Outcome {
				t.Errorf("outcome %s", got.Outcome)
			}
			opts := protocmp.IgnoreFields(&usagev1.Record{}, "id", "kind", "admission", "key", "team", "model", "endpoint", "spoke",
				"revision", "operation", "client_request_id", "stream", "admitted_at")
			if diff := cmp.Diff(c.want, got, protocmp.Transform(), opts); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The meter's clock and Envoy's are read at different moments: a record never ends before it begins.
func TestFirstByteIsNotAfterTheEnd(t *testing.T) {
	r := newRig(Config{})
	r.open("a")
	late := ended().At.Add(time.Second)
	r.FirstByte("a", "", late, nil)
	r.End("a", Facts{Metered: whole(), Logged: ended()})
	rec := r.of("a", "usage")[0]
	if got := rec.GetFirstByteAt().AsTime(); !got.Equal(ended().At) {
		t.Errorf("first byte at %v, ended at %v", got, rec.GetEndedAt().AsTime())
	}
}

// TestCost: at the price of the revision that admitted it, by the tokens of the record; unknown where those are.
func TestCost(t *testing.T) {
	dear := &policy.Price{Currency: "USD", Input: 1_250_000, Cached: 125_000, Output: 10_000_000}
	stated := &usagev1.Price{Currency: "USD", Input: 1_250_000, Cached: 125_000, Output: 10_000_000}
	counted := func(prompt, cached, completion *int64, from string) *Metered {
		return &Metered{Report: openai.Report{Usage: openai.Usage{Prompt: prompt, Cached: cached, Completion: completion}, CountedFrom: from},
			Status: 200, At: time.Unix(1_700_000_005, 0)}
	}
	left := &Logged{Status: 200, Served: "10.0.0.2:8000", ClientCut: true, At: time.Unix(1_700_000_006, 0)}
	for name, c := range map[string]struct {
		price *policy.Price
		facts Facts
		want  *int64
	}{
		"whole":                              {dear, Facts{Metered: whole(), Logged: ended()}, proto.Int64(4)}, // 3×1.25 + 4×0.125 = 4.25
		"cut: what was delivered until then": {dear, Facts{Metered: counted(proto.Int64(1000), nil, proto.Int64(3), "events"), Logged: left}, proto.Int64(1280)},
		"cut, and the prompt is unknown":     {dear, Facts{Metered: counted(nil, nil, proto.Int64(3), "events"), Logged: left}, nil},
		"nobody counted":                     {dear, Facts{Logged: ended()}, nil},
		"not served":                         {dear, notServed(), nil},
		"free":                               {&policy.Price{Currency: "USD"}, Facts{Metered: whole(), Logged: ended()}, proto.Int64(0)},
		"no price":                           {nil, Facts{Metered: whole(), Logged: ended()}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(Config{})
			r.Open(Admission{ID: "a", Price: c.price, At: time.Unix(1_700_000_000, 0)}, limits.Hold{})
			r.End("a", c.facts)
			r.pass(time.Minute)
			admitted, used := r.one(t, "a", "admitted"), r.one(t, "a", "usage")
			if diff := cmp.Diff(c.want, used.Cost); diff != "" || admitted.Cost != nil {
				t.Errorf("(-want +got):\n%s admitted: %v", diff, admitted.Cost)
			}
			if c.price == dear && (!proto.Equal(admitted.Price, stated) || !proto.Equal(used.Price, stated)) || c.price == nil && used.Price != nil {
				t.Errorf("price %v, %v", admitted.Price, used.Price)
			}
		})
	}
}

func notServed() Facts {
	return Facts{Metered: &Metered{Report: whole().Report, Status: 503, Refused: true, SawEnd: true, At: time.Unix(1_700_000_005, 0)},
		Logged: &Logged{Status: 503, NoUpstream: true, At: time.Unix(1_700_000_006, 0)}}
}

// What the policy says of a key for the bill stands in both records of the door.
func TestLabelsOfTheKey(t *testing.T) {
	r := newRig(Config{})
	labels := map[string]string{"cost-center": "4711"}
	r.Open(Admission{ID: "a", Labels: labels, At: time.Unix(1_700_000_000, 0)}, limits.Hold{})
	r.End("a", Facts{Metered: whole(), Logged: ended()})
	for _, kind := range []string{"admitted", "usage"} {
		if diff := cmp.Diff(labels, r.one(t, "a", kind).GetLabels()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}
