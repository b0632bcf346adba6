package usage

import (
	"cmp"
	"slices"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Repaired, among a record's anomalies, says that reconciliation wrote it in place of one that was lost.
const Repaired = "repaired"

// Wins tells whether r counts and over does not, two records of one id with different contents. A record of the one who saw
// the request wins over its repair, however late it comes; but one that counted nothing (the meter had missed it) yields to
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

// Uncounted tells whether r is the usage of a request that may have been served, and whose tokens nobody has seen.
func Uncounted(r *usagev1.Record) bool {
	return r.Kind == KindUsage && r.CountedFrom == CountedNone && r.Outcome != OutcomeNotServed
}
