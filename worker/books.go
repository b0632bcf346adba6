package worker

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// books journal what the shim asks of its engine by itself, and what the engine counted, so that the balance knows both.
type books struct {
	journal                 Journal
	worker, spoke, endpoint string

	epoch           string // of the engine's run
	probes, engines uint64 // in it
}

func (b *books) begin(epoch string) { b.epoch, b.probes, b.engines = epoch, 0, 0 }

func (b *books) source() string { return "worker/" + b.worker }

// probe journals a generation that the engine may have counted. One that it refused or never got it has not.
func (b *books) probe(r probeResult) {
	if !r.reached || r.refused {
		return
	}
	b.probes++
	rec := &usagev1.Record{
		Id: usage.ProbeID(b.source(), b.epoch, b.probes), Kind: usage.KindProbe, EngineEpoch: b.epoch,
		Worker: b.worker, Spoke: b.spoke, Endpoint: b.endpoint, Operation: r.operation.String(),
		Outcome: usage.OutcomeComplete, CountedFrom: usage.CountedNone, EndedAt: timestamppb.Now(),
	}
	if r.status != 0 {
		rec.Status = new(uint32(r.status))
	}
	switch {
	case r.err != nil && r.status >= 300:
		rec.Outcome = usage.OutcomeUpstreamError
	case r.err != nil:
		rec.Outcome = usage.OutcomeUpstreamCut
	default:
		u := r.usage.Usage
		rec.PromptTokens, rec.CachedTokens, rec.CompletionTokens, rec.ReasoningTokens = u.Prompt, u.Cached, u.Completion, u.Reasoning
		rec.CountedFrom = r.usage.CountedFrom
		rec.FirstByteAt = timestamppb.New(r.began.Add(r.took))
	}
	b.journal.Append(rec)
}

// engine journals what the engine had counted at a moment.
func (b *books) engine(moment string, c counters) {
	b.engines++
	b.journal.Append(&usagev1.Record{
		Id: usage.EngineID(b.source(), b.epoch, b.engines), Kind: usage.KindEngine, EngineEpoch: b.epoch,
		Worker: b.worker, Spoke: b.spoke, Endpoint: b.endpoint, EndedAt: timestamppb.New(time.Now()),
		Engine: &usagev1.EngineCounters{Moment: moment, PromptTokens: c.Prompt, CompletionTokens: c.Completion},
	})
}
