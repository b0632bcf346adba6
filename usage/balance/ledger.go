package balance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// rowKey names a row.
type rowKey struct {
	hour         time.Time
	source, team string
}

// ledger adds up what was found.
type ledger struct {
	rows            map[rowKey]*Row
	problems, notes []Problem
	counts          map[Kind]uint64
	bySource        map[string]map[Kind]uint64
	records         uint64
	named           int
}

func newLedger(named int) ledger {
	return ledger{rows: map[rowKey]*Row{}, counts: map[Kind]uint64{}, bySource: map[string]map[Kind]uint64{}, named: named}
}

// about makes a problem of a record.
func about(kind Kind, r *usagev1.Record, format string, args ...any) Problem {
	return Problem{
		Kind: kind, Admission: r.Admission, ID: r.Id, Source: r.Source, Epoch: r.Epoch, Sequence: r.Sequence, Team: r.Team,
		What: fmt.Sprintf(format, args...),
	}
}

func (l *ledger) problem(p Problem) {
	l.counts[p.Kind]++
	if p.Source != "" {
		if l.bySource[p.Source] == nil {
			l.bySource[p.Source] = map[Kind]uint64{}
		}
		l.bySource[p.Source][p.Kind]++
	}
	if list := l.list(p.Kind); len(*list) < l.named {
		*list = append(*list, p)
	}
}

func (l *ledger) list(k Kind) *[]Problem {
	if k.Fails() {
		return &l.problems
	}
	return &l.notes
}

func (l *ledger) row(hour time.Time, source, team string) *Row {
	key := rowKey{hour, source, team}
	r := l.rows[key]
	if r == nil {
		r = &Row{Hour: hour, Source: source, Team: team}
		l.rows[key] = r
	}
	return r
}

// record counts a record in its row.
func (l *ledger) record(hour time.Time, r *usagev1.Record) {
	row := l.row(hour, r.Source, r.Team)
	switch r.Kind {
	case usage.KindAdmitted:
		row.Admitted++
		return
	case usage.KindUsage:
		row.Usage++
	case usage.KindServed:
		row.Served++
	}
	row.PromptTokens += r.GetPromptTokens()
	row.CompletionTokens += r.GetCompletionTokens()
}

// tell is problem, counted in its row too.
func (l *ledger) tell(hour time.Time, p Problem) {
	p.Hour = &hour
	l.problem(p)
	row := l.row(hour, p.Source, p.Team)
	switch p.Kind {
	case MissingUsage:
		row.MissingUsage++
	case MissingAdmitted:
		row.MissingAdmitted++
	case MissingServed:
		row.MissingServed++
	case Conflict, Disagreement, Contradiction, Cost:
		row.Conflicts++
	case Tokens, Uncounted:
		row.TokenDifferences++
	case Doubled, Superseded:
		row.Doubled++
	case RepairedNow, RepairedBefore:
		row.Repaired++
	case WrittenOff, LostServed:
		row.Lost++
	}
}

func (l *ledger) sorted() []Row {
	list := []Row{}
	for _, r := range l.rows {
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b Row) int {
		return cmp.Or(a.Hour.Compare(b.Hour), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Team, b.Team))
	})
	return list
}

func sortProblems(list []Problem) {
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Epoch, b.Epoch),
			cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.ID, b.ID), cmp.Compare(a.What, b.What))
	})
}
