package flight

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/usage"
)

// record is what both records of a flight say alike.
func (f *flight) record(kind, id, spoke string) *usagev1.Record {
	a := &f.admission
	r := &usagev1.Record{
		Id: id, Kind: kind, Admission: a.ID, Key: a.Key, Team: a.Team, Model: a.Model, Endpoint: a.Endpoint, Spoke: spoke,
		Labels: a.Labels, Revision: a.Revision, Operation: a.Op.String(), ClientRequestId: a.ClientRequestID, Stream: a.Stream,
		RequestBytes: positive(a.RequestBytes), AdmittedAt: stamp(a.At), Price: price(a.Price),
	}
	if a.AskedModel != "" {
		r.AskedModel = &a.AskedModel
	}
	return r
}

// admitted is the record of the yes.
func (f *flight) admitted(spoke string) *usagev1.Record {
	return f.record(usage.KindAdmitted, usage.AdmittedID(f.admission.ID), spoke)
}

// used is the record of the end. now is when it ended as far as no fact knows better.
func (f *flight) used(spoke string, now time.Time) *usagev1.Record {
	m, l := f.known()
	r := f.record(usage.KindUsage, usage.UsageID(f.admission.ID), spoke)
	r.Outcome, r.Anomalies = Outcome(m, l)
	if f.facts.Lost != "" && l == nil {
		r.Anomalies = append(r.Anomalies, f.facts.Lost)
	}
	if f.revoked {
		r.Anomalies = append(r.Anomalies, revoked)
	}
	if s := status(m, l); s > 0 {
		r.Status = proto.Uint32(uint32(s))
	}
	r.Worker, r.CountedFrom = f.served, usage.CountedNone
	first, end := f.firstByte, now
	if m != nil {
		r.ResponseBytes = proto.Int64(m.ResponseBytes)
		end = m.At
		count(r, m)
		r.Cost = usage.Cost(r.Price, r.PromptTokens, r.CachedTokens, r.CompletionTokens)
	}
	if l != nil {
		r.ResponseBytes, r.Attempt = proto.Int64(l.ResponseBytes), uint32(max(l.Attempts, 0))
		end = l.At
		if l.Served != "" {
			r.Worker = l.Served
		}
		if l.RequestBytes > 0 {
			r.RequestBytes = proto.Int64(l.RequestBytes)
		}
		if first.IsZero() {
			first = l.FirstByte
		}
	}
	if end.IsZero() {
		end = now
	}
	if first.After(end) { // the meter saw it late: two clocks, and the log's is Envoy's own
		first = end
	}
	if r.Outcome == usage.OutcomeNotServed { // what was tried last, or sent instead of an answer, is no service
		r.Worker, first = "", time.Time{}
	}
	r.FirstByteAt, r.EndedAt = stamp(first), stamp(end)
	return r
}

// count takes over the tokens, unless nobody served: then what passed was no engine's.
func count(r *usagev1.Record, m *Metered) {
	if r.Outcome == usage.OutcomeNotServed || m.Report.CountedFrom == "" {
		return
	}
	u := m.Report.Usage
	r.PromptTokens, r.CachedTokens, r.CompletionTokens, r.ReasoningTokens = u.Prompt, u.Cached, u.Completion, u.Reasoning
	r.CountedFrom = m.Report.CountedFrom
}

func price(p *policy.Price) *usagev1.Price {
	if p == nil {
		return nil
	}
	return &usagev1.Price{Currency: p.Currency, Input: int64(p.Input), Cached: int64(p.Cached), Output: int64(p.Output)}
}

// positive gives nil, unknown, for what cannot be true.
func positive(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
