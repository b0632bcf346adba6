package usage

import (
	"cmp"
	"errors"
	"slices"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Repaired, among a record's anomalies, says that reconciliation wrote it in place of one that was lost.
const Repaired = "repaired"

// Wins tells whether r counts and over does not, two records of one id with different contents. A record of the one who saw
// the request wins over its repair, however late it comes; but one that counted nothing (nobody had, at the door) yields to
// the repair, which knows what the worker counted. Of two repairs the later one wins. Of two originals, which must not
// be, none wins: the first that came stays.
func Wins(r, over *usagev1.Record) bool {
	a, b := rank(r), rank(over)
	if a != b || a != rankRepair {
		return a > b
	}
	return cmp.Or(cmp.Compare(r.Epoch, over.Epoch), cmp.Compare(r.Sequence, over.Sequence)) > 0
}

const (
	rankUncounted = iota
	rankRepair
	rankOriginal
)

func rank(r *usagev1.Record) int {
	switch {
	case slices.Contains(r.Anomalies, Repaired):
		return rankRepair
	case Uncounted(r):
		return rankUncounted
	}
	return rankOriginal
}

// Unmetered, among the anomalies of a usage record, says that the door knows nothing of the answer: no meter saw it, and no note of it passed.
const Unmetered = "unmetered"

// Uncounted tells whether r is the usage of a request that may have been served, and of which the door knows nothing: its tokens are
// unknown. Where a client left before there was anything to count, none were delivered, and that is known.
func Uncounted(r *usagev1.Record) bool {
	return r.Kind == KindUsage && r.CountedFrom == CountedNone && r.Outcome != OutcomeNotServed && slices.Contains(r.Anomalies, Unmetered)
}

// ReadOnce is [Read], but that of each id only the record that counts is delivered: a repair, after all others, only where
// nothing wins over it. It reads twice, and holds the repairs in memory.
func ReadOnce(dir string, f func(*usagev1.Record) error) (Summary, error) {
	repairs := map[string]*usagev1.Record{}
	var order []string
	s, err := Read(dir, func(r *usagev1.Record) error {
		if rank(r) != rankRepair {
			return nil
		}
		if before := repairs[r.Id]; before == nil {
			order = append(order, r.Id)
		} else if !Wins(r, before) {
			return nil
		}
		repairs[r.Id] = r
		return nil
	})
	var damage *DamageError
	if err != nil && !errors.As(err, &damage) {
		return s, err
	}
	s, err = Read(dir, func(r *usagev1.Record) error {
		repair := repairs[r.Id]
		if rank(r) == rankRepair || repair != nil && !Wins(r, repair) {
			return nil
		}
		delete(repairs, r.Id)
		return f(r)
	})
	if err != nil && !errors.As(err, &damage) {
		return s, err
	}
	for _, id := range order {
		if r := repairs[id]; r != nil {
			if err := f(r); err != nil {
				return s, err
			}
		}
	}
	return s, err
}
