package balance

import (
	"context"
	"strings"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// Item is one record as it was found.
type Item struct {
	Record *usagev1.Record // nil where Err is set
	Body   []byte          // its JSON as it was found, until Add returns; nil: it is not held against the chain
	Err    error           // it cannot be read, or cannot be what it says
	Place  string          // where it was found
	Lane   string          // a journal or a partition: records of one source come in order in it
	// Fresh: it came after the reading had begun. It counts, but proves nothing of what is not there yet.
	Fresh bool
}

// Traits of evidence say what its silence means.
type Traits struct {
	// Whole: nothing was ever removed, so that every epoch begins with sequence 1.
	Whole bool
	// Complete: it is all that the sources had at the time of reading, nothing is on its way.
	Complete bool
	// Since is the time from which on it is whole; zero: as Whole says.
	Since time.Time
	// Slack is how many numbers of an epoch may be there before an earlier one is.
	Slack uint64
}

// Evidence is what a balance is made of.
type Evidence interface {
	Traits() Traits
	// Read delivers everything once. progress, which may be nil, is told how much of how much was read, in a unit of its own.
	Read(ctx context.Context, add func(Item) error, progress func(done, total int64)) error
}

// eventTime is the latest that the record speaks of: it was journaled then or later. Zero: it says no time.
func eventTime(r *usagev1.Record) time.Time {
	switch {
	case r.EndedAt != nil:
		return r.EndedAt.AsTime()
	case r.AdmittedAt != nil:
		return r.AdmittedAt.AsTime()
	}
	return time.Time{}
}

// fits tells why a record's own parts contradict each other; empty: they do not.
func fits(r *usagev1.Record) string {
	if r.Source == "" || r.Sequence == 0 {
		return "a record without source or sequence"
	}
	if strings.HasPrefix(r.Id, "/") {
		return "no admission"
	}
	switch r.Kind {
	case usage.KindAdmitted:
		if r.Id != usage.AdmittedID(r.Admission) || r.AdmittedAt == nil {
			return "no id of this admission, or no time"
		}
	case usage.KindUsage:
		if r.Id != usage.UsageID(r.Admission) || r.AdmittedAt == nil {
			return "no id of this admission, or no time"
		}
	case usage.KindEngine:
		if !strings.HasPrefix(r.Id, engineID(usage.EngineID, r)) || r.Engine == nil || r.EngineEpoch == "" {
			return "no id of this source and engine, or no counters"
		}
	case usage.KindProbe:
		if !strings.HasPrefix(r.Id, engineID(usage.ProbeID, r)) {
			return "no id of this source and engine"
		}
	case usage.KindServed:
		if !strings.HasPrefix(r.Id, usage.ServedID(r.Admission, r.Attempt, "")) {
			return "no id of this admission and attempt"
		}
	}
	return ""
}

// engineID is what an id of an engine's record begins with.
func engineID(of func(source, epoch string, number uint64) string, r *usagev1.Record) string {
	return strings.TrimSuffix(of(r.Source, r.EngineEpoch, 0), "0")
}

// writeOffPrefix begins the id of a record that closes a source.
const writeOffPrefix = "write-off/"

// WriteOff is the record that closes a source, with all the epochs that it has begun until now.
func WriteOff(source string, now time.Time) *usagev1.Record {
	return &usagev1.Record{Id: writeOffPrefix + source, Kind: usage.KindBalance, EndedAt: stamp(now)}
}
