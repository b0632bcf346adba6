package usage

import (
	"slices"
	"strconv"
	"strings"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Kinds of record.
const (
	KindAdmitted = "admitted" // the door said yes
	KindServed   = "served"   // a worker's shim answered
	KindUsage    = "usage"    // the door, at the end
	KindBalance  = "balance"  // reconciliation, about sources and not about a request

	KindCheckpoint = "checkpoint" // a source, about its own records; in Kafka it goes to the topic of KindBalance
	KindProbe      = "probe"      // a generation that a shim asked for by itself; with KindServed
	KindEngine     = "engine"     // what an engine's own counters said; with KindBalance
	KindRejected   = "rejected"   // the door said no: outside the balance
)

// Moments of an engine's counters: see usagev1.EngineCounters.
const (
	MomentFirst = "first"
	MomentIdle  = "idle"
	MomentLast  = "last"
	MomentLost  = "lost"
)

// Kinds are all that have a topic of their own in Kafka.
func Kinds() []string { return slices.Clone(shippedKinds) }

// Outcomes of a request, as "usage" and "served" say them.
const (
	OutcomeComplete      = "complete"
	OutcomeClientCut     = "client_cut"
	OutcomeUpstreamCut   = "upstream_cut"
	OutcomeUpstreamError = "upstream_error"
	OutcomeNotServed     = "not_served"
)

// Where token counts come from: see openai.Report, which has another, for what was counted as it passed.
const (
	CountedEngine = "engine" // reported by the engine
	CountedNone   = "none"   // unknown
)

// maxClientID bounds what a client can make us keep of its own request id. In bytes.
const maxClientID = 128

// ClientRequestID is what the client called its request, as it stands in records.
func ClientRequestID(id string) string {
	if len(id) <= maxClientID {
		return id
	}
	return strings.ToValidUTF8(strings.Clone(id[:maxClientID]), "")
}

// AdmittedID is the id of the record that the door writes when it says yes.
func AdmittedID(admission string) string { return admission + "/" + KindAdmitted }

// UsageID is the id of the record that the door writes at the end.
func UsageID(admission string) string { return admission + "/" + KindUsage }

// ProbeID and EngineID are those of a shim's probes and of its readings of an engine's counters, numbered from 1 in each run
// of the engine.
func ProbeID(source, engineEpoch string, number uint64) string {
	return KindProbe + "/" + source + "/" + engineEpoch + "/" + strconv.FormatUint(number, 10)
}

// EngineID: see ProbeID.
func EngineID(source, engineEpoch string, number uint64) string {
	return KindEngine + "/" + source + "/" + engineEpoch + "/" + strconv.FormatUint(number, 10)
}

// ServedID is the id of the record of one attempt (from 1) by one leg of a worker ("main" where there is only one).
func ServedID(admission string, attempt uint32, leg string) string {
	return admission + "/" + KindServed + "/" + strconv.FormatUint(uint64(attempt), 10) + "/" + leg
}

// Answers says of a served record that a client's answer may have come from it: other legs than the main one work for that,
// and what they took from an engine is no client's.
func Answers(r *usagev1.Record) bool { return strings.HasSuffix(r.Id, "/main") }
