package balance

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// Options say what to judge, and how.
type Options struct {
	// From and To bound the time of admission; zero: no bound. To is not included.
	From, To time.Time
	// Now is the time of reading.
	Now time.Time
	// Settle is how long a request may be open, and a record on its way. 0: everything is at rest, judge it all.
	Settle time.Duration
	// CutBound is how many tokens more than its worker saw an engine may have counted for an answer that was cut.
	CutBound int64
	// Trusts tells whether a source may sign by the key of this fingerprint; nil: the first one that is found.
	Trusts func(source, fingerprint string) bool
	// WriteOff are sources that will never return, beside those that a record in the evidence closes.
	WriteOff []string
	// Repair takes the records that are written in place of lost ones; nil: nothing is repaired. A record that was handed over
	// is the callee's.
	Repair func(*usagev1.Record) error
	// Named is how many problems, and how many notes, are kept by name (10,000 each); all are counted.
	Named int
	// TempDir takes the temporary files; "": the system's.
	TempDir string
}

// DefaultCutBound is what engines need to notice that nobody waits any more: vLLM stops within a few hundred tokens.
const DefaultCutBound = 512

var marshal = proto.MarshalOptions{Deterministic: true}

// repairPrefix begins the names of sources of repairs.
const repairPrefix = "repair/"

// RepairSource is the source of what name repairs.
func RepairSource(name string) string { return repairPrefix + name }

// Audit collects evidence, and judges it. It is for one goroutine.
type Audit struct {
	opts      Options
	traits    Traits
	buckets   *buckets
	sources   map[string]*source
	lanes     map[laneKey]uint64
	suspects  map[mark]*suspect
	writeOffs map[string]time.Time
	ledger    ledger
	engines   engines
	chains    *usage.Auditor

	// Known by the time that all admissions are judged.
	byAddress map[string]map[string]bool // sources of the workers that answered at an address
	unserved  []unserved
	err       error // of Options.Repair
}

// laneKey is one source in one lane.
type laneKey struct {
	lane, source string
	epoch        uint64
}

// suspect is a number that was seen twice.
type suspect struct{ id string }

// New begins an audit of evidence with these traits. Close it.
func New(opts Options, traits Traits) *Audit {
	opts.Named = cmp.Or(opts.Named, 10_000)
	opts.From = later(opts.From, traits.Since)
	a := &Audit{
		opts: opts, traits: traits, buckets: &buckets{parent: opts.TempDir, most: bucketMemory}, sources: map[string]*source{}, lanes: map[laneKey]uint64{},
		suspects: map[mark]*suspect{}, writeOffs: map[string]time.Time{}, byAddress: map[string]map[string]bool{},
		ledger: newLedger(opts.Named), engines: engines{bound: opts.CutBound, runs: map[engineRun]*engineLog{}},
	}
	a.chains = usage.NewAuditor(func(m usage.Mismatch) {
		a.ledger.problem(Problem{Kind: Altered, Source: m.Source, Epoch: m.Epoch, Sequence: m.Sequence, What: m.What})
	})
	for _, s := range opts.WriteOff {
		a.writeOffs[s] = opts.Now
	}
	return a
}

// Close removes the temporary files.
func (a *Audit) Close() error { return a.buckets.close() }

// Add takes one piece of evidence. An error means that it could not be kept.
func (a *Audit) Add(it Item) error {
	r := it.Record
	if it.Err == nil {
		if why := fits(r); why != "" {
			it.Err = fmt.Errorf("record %q: %s", r.Id, why)
		}
	}
	if it.Err == nil && it.Body != nil {
		it.Err = a.link(it)
	}
	if it.Err != nil {
		a.ledger.problem(Problem{Kind: Damaged, What: fmt.Sprintf("%s: %v", it.Place, it.Err)})
		return nil
	}
	a.ledger.records++
	s := a.sources[r.Source]
	if s == nil {
		s = &source{name: r.Source, epochs: map[uint64]*epoch{}}
		a.sources[r.Source] = s
	}
	if s.see(r, it.Fresh, a.opts.From, a.opts.To) {
		a.inOrder(it)
	} else {
		a.suspects[markOf(r)] = nil
	}
	return a.keep(r)
}

// link holds a record against what is said of it.
func (a *Audit) link(it Item) error {
	l, err := usage.LinkOf(it.Record, it.Body)
	if err == nil {
		a.chains.Add(l)
	}
	return err
}

// inOrder wants that a number which was not seen before is greater than those of its source before it in the lane.
func (a *Audit) inOrder(it Item) {
	r := it.Record
	key := laneKey{it.Lane, r.Source, r.Epoch}
	if before := a.lanes[key]; r.Sequence < before {
		a.ledger.problem(about(OutOfOrder, r, "%s: it comes after sequence %d", it.Place, before))
		return
	}
	a.lanes[key] = r.Sequence
}

// edge is how far a repair may be off that knows the time of admission only from a worker.
const edge = time.Hour

// keep puts a record aside until all are there, if it may be of the range.
func (a *Audit) keep(r *usagev1.Record) error {
	at, name := eventTime(r), r.Id
	if ofRequest(r) {
		name = r.Admission
	}
	switch r.Kind {
	case usage.KindAdmitted, usage.KindUsage:
		at = r.AdmittedAt.AsTime()
	case usage.KindServed: // it may have been admitted long before
		if at.Before(a.opts.From.Add(-edge)) {
			return nil
		}
		return a.buckets.add(r, name)
	case usage.KindBalance:
		if source, is := strings.CutPrefix(r.Id, writeOffPrefix); is {
			a.writeOffs[source] = later(a.writeOffs[source], at)
			return nil
		}
	case usage.KindEngine:
		a.engines.read(r)
	}
	if at.Before(a.opts.From.Add(-edge)) || a.after(at.Add(-edge)) {
		return nil
	}
	return a.buckets.add(r, name)
}

// ofRequest tells whether a record is one of the three of an admission.
func ofRequest(r *usagev1.Record) bool {
	return r.Kind == usage.KindAdmitted || r.Kind == usage.KindUsage || r.Kind == usage.KindServed
}

func (a *Audit) after(t time.Time) bool { return !a.opts.To.IsZero() && !t.Before(a.opts.To) }

func stamp(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t) }
