package balance

import (
	"time"

	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// unwitnessed, among the anomalies of a repair, says that no worker knew of the request when it was written.
const unwitnessed = "unwitnessed"

// restoreUsage makes a usage record of what the door had admitted and a worker served.
func restoreUsage(admitted, served *usagev1.Record) *usagev1.Record {
	r := bare(admitted, usage.KindUsage, usage.UsageID(admitted.Admission))
	s := proto.CloneOf(served)
	r.Worker, r.Attempt, r.Outcome, r.Status = s.Worker, s.Attempt, s.Outcome, s.Status
	r.RequestBytes, r.ResponseBytes = s.RequestBytes, s.ResponseBytes
	r.FirstByteAt, r.EndedAt = s.FirstByteAt, s.EndedAt
	r.Anomalies = append(s.Anomalies, usage.Repaired)
	counts(r, s)
	return r
}

// closeUsage makes a usage record for what no worker knows of.
func closeUsage(admitted *usagev1.Record) *usagev1.Record {
	r := bare(admitted, usage.KindUsage, usage.UsageID(admitted.Admission))
	r.Outcome, r.CountedFrom, r.EndedAt = usage.OutcomeNotServed, usage.CountedNone, r.AdmittedAt
	r.Anomalies = []string{usage.Repaired, unwitnessed}
	return r
}

// recount makes a usage record of one that counted nothing, with what a worker counted.
func recount(u, served *usagev1.Record) *usagev1.Record {
	r := proto.CloneOf(u)
	r.Anomalies = append(r.Anomalies, usage.Repaired)
	counts(r, proto.CloneOf(served))
	return r
}

func counts(r, s *usagev1.Record) {
	r.PromptTokens, r.CachedTokens, r.CompletionTokens, r.ReasoningTokens = s.PromptTokens, s.CachedTokens, s.CompletionTokens, s.ReasoningTokens
	r.CountedFrom = s.CountedFrom
	r.Cost = usage.Cost(r.Price, r.PromptTokens, r.CachedTokens, r.CompletionTokens)
}

// restoreAdmitted makes the record of the yes of one of the end.
func restoreAdmitted(u *usagev1.Record) *usagev1.Record {
	r := bare(u, usage.KindAdmitted, usage.AdmittedID(u.Admission))
	r.Anomalies = []string{usage.Repaired}
	return r
}

// unknownAdmitted makes the record of the yes of one that only a worker knows. at is when, as far as the worker knows.
func unknownAdmitted(served *usagev1.Record, at time.Time) *usagev1.Record {
	r := restoreAdmitted(served)
	r.AdmittedAt = stamp(at)
	return r
}

// bare is what all records of an admission say alike.
func bare(r *usagev1.Record, kind, id string) *usagev1.Record {
	c := proto.CloneOf(r)
	return &usagev1.Record{
		Id: id, Kind: kind, Admission: c.Admission, Key: c.Key, Team: c.Team, Model: c.Model, AskedModel: c.AskedModel,
		Endpoint: c.Endpoint, Spoke: c.Spoke, Revision: c.Revision, Operation: c.Operation, ClientRequestId: c.ClientRequestId,
		Labels: c.Labels, Stream: c.Stream, RequestBytes: c.RequestBytes, AdmittedAt: c.AdmittedAt, Price: c.Price,
	}
}
