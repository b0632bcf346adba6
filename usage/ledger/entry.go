package ledger

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protodelim"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// entry is what is known of one admission: of each kind the record that counts, without what is never asked again.
type entry struct{ admitted, usage, served *usagev1.Record }

// verdict says what became of a record.
type verdict string

const (
	counted    verdict = "counted"    // the entry knows more now
	repeated   verdict = "repeated"   // it was there already
	superseded verdict = "superseded" // another one of its id wins over it
	conflict   verdict = "conflict"   // another original has its id: the first one stays
	ignored    verdict = "ignored"    // nothing is counted by its kind
	refused    verdict = "refused"    // see Refusal
)

// take adds a record. The result does not depend on the order of taking, but for conflicts, of which there must be none.
func (e *entry) take(r *usagev1.Record) verdict {
	switch r.Kind {
	case usage.KindAdmitted:
		return replace(&e.admitted, r)
	case usage.KindUsage:
		return replace(&e.usage, r)
	}
	if !usage.Answers(r) { // no client got anything of it
		return ignored
	}
	if e.served != nil && e.served.Id == r.Id {
		return repeated
	}
	if e.served == nil || better(r, e.served) {
		e.served = trimmed(r)
		return counted
	}
	return superseded
}

func replace(held **usagev1.Record, r *usagev1.Record) verdict {
	h := *held
	switch {
	case h == nil || usage.Wins(r, h):
		*held = trimmed(r)
		return counted
	case h.Source == r.Source && h.Epoch == r.Epoch && h.Sequence == r.Sequence:
		return repeated
	case usage.Wins(h, r):
		return superseded
	}
	return conflict
}

// better tells which of two attempts the client's answer came from.
func better(r, than *usagev1.Record) bool {
	return cmp.Or(
		less(than.Outcome == usage.OutcomeComplete, r.Outcome == usage.OutcomeComplete),
		cmp.Compare(r.GetCompletionTokens(), than.GetCompletionTokens()),
		cmp.Compare(r.Attempt, than.Attempt),
		cmp.Compare(r.Id, than.Id),
	) > 0
}

func less(a, b bool) int {
	switch {
	case b && !a:
		return 1
	case a && !b:
		return -1
	}
	return 0
}

// trimmed is what of a record is kept.
func trimmed(r *usagev1.Record) *usagev1.Record {
	t := &usagev1.Record{
		Kind: r.Kind, Source: r.Source, Epoch: r.Epoch, Sequence: r.Sequence, PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens,
		CompletionTokens: r.CompletionTokens, ReasoningTokens: r.ReasoningTokens, CountedFrom: r.CountedFrom, Outcome: r.Outcome,
	}
	if r.Kind == usage.KindServed {
		t.Id, t.Attempt = r.Id, r.Attempt
		return t
	}
	t.Key, t.Team, t.Model, t.Labels, t.Price = r.Key, r.Team, r.Model, r.Labels, r.Price
	t.AdmittedAt, t.EndedAt = r.AdmittedAt, r.EndedAt
	for _, a := range r.Anomalies {
		if a == usage.Repaired || a == usage.Unmetered || a == unwitnessed {
			t.Anomalies = append(t.Anomalies, a)
		}
	}
	return t
}

// unwitnessed, among the anomalies of a repair, says that no worker knew of the request: package balance writes it.
const unwitnessed = "unwitnessed"

func repaired(r *usagev1.Record) bool { return slices.Contains(r.GetAnomalies(), usage.Repaired) }

// open tells whether the request was admitted, and nobody told yet how it ended.
func (e *entry) open() bool { return e.admitted != nil && e.usage == nil }

// encode is the entry as it is kept.
func (e *entry) encode() ([]byte, error) {
	var b bytes.Buffer
	for _, r := range []*usagev1.Record{e.admitted, e.usage, e.served} {
		if r == nil {
			continue
		}
		if _, err := protodelim.MarshalTo(&b, r); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func decodeEntry(state []byte) (*entry, error) {
	e := new(entry)
	for b := bytes.NewReader(state); ; {
		r := new(usagev1.Record)
		switch err := protodelim.UnmarshalFrom(b, r); {
		case errors.Is(err, io.EOF):
			return e, nil
		case err != nil:
			return nil, fmt.Errorf("an admission's state in the database cannot be read: %w", err)
		}
		switch r.Kind {
		case usage.KindAdmitted:
			e.admitted = r
		case usage.KindUsage:
			e.usage = r
		case usage.KindServed:
			e.served = r
		}
	}
}
