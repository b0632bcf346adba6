package balance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// EngineRow holds what one run of an engine counted, from one reading of its counters to a later one, against what its worker
// journaled between them.
type EngineRow struct {
	Worker string     `json:"worker"` // source
	Engine string     `json:"engine"` // epoch
	From   *time.Time `json:"from"`   // of the readings; null: there is none
	To     *time.Time `json:"to"`
	Moment string     `json:"moment"` // of the later one; empty: there is none yet

	Served     uint64      `json:"served"` // answers
	Probes     uint64      `json:"probes"`
	Cut        uint64      `json:"cut"`     // answers that broke off
	Unknown    uint64      `json:"unknown"` // whole ones whose tokens the worker does not know
	Prompt     EngineCount `json:"prompt_tokens"`
	Completion EngineCount `json:"completion_tokens"`
	Verdict    Verdict     `json:"verdict"`
}

// EngineCount is a number of tokens from both sides.
type EngineCount struct {
	Engine  *int64 `json:"engine"`  // by its counter; null: it does not say
	Records int64  `json:"records"` // by the worker's records, as far as they know
	Least   int64  `json:"least"`   // what the counter may say for these records
	Most    int64  `json:"most"`
}

// Verdict on a row of an engine.
type Verdict string

// Verdicts. Differs alone is a problem.
const (
	Agrees     Verdict = "agrees"      // within the bounds
	Bounded    Verdict = "bounded"     // it died: it had not counted more than was journaled, and what it counted last nobody knows
	Differs    Verdict = "differs"     // beyond the bounds
	NoCounters Verdict = "no counters" // nobody read them, or the engine has none
	Unread     Verdict = "unread"      // journaled behind the last reading
)

// known is the time from which on a worker's journal is whole, as far as evidence can tell; zero: as far as it is there.
func (a *Audit) known() time.Time {
	if a.traits.Complete || a.opts.From.IsZero() {
		return time.Time{}
	}
	return later(a.traits.Since, a.opts.From.Add(-edge+clockSkew))
}

// clockSkew is how far a worker's clock may be off that of Kafka.
const clockSkew = 10 * time.Minute

// orderEngines picks the readings that can be used: all that was journaled before them is there.
func (a *Audit) orderEngines() {
	known := a.known()
	a.engines.order(func(r reading) bool {
		s := a.sources[r.at.source]
		_, to := a.judged(s, s.epochs[r.at.epoch])
		return r.at.sequence <= to && !r.time.Before(known) && !a.after(r.time)
	})
}

// judgeEngines compares. All records were counted.
func (a *Audit) judgeEngines() []EngineRow {
	rows := []EngineRow{}
	for run, l := range a.engines.runs {
		for i, end := range l.readings {
			if i == 0 || end.moment == usage.MomentFirst || end.time.Before(a.opts.From) {
				continue // it began to count, or to be read
			}
			row := rowOf(run, &l.readings[i-1], &end, &l.steps[i])
			rows = append(rows, row)
			a.tellEngine(row, end.at)
		}
		if rest := &l.steps[len(l.readings)]; rest.served+rest.probes > 0 {
			row := rowOf(run, nil, nil, rest)
			if len(l.readings) == 0 {
				row.Verdict = NoCounters
			}
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b EngineRow) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Engine, b.Engine), compareTimes(a.To, b.To))
	})
	return rows
}

// compareTimes has none at the end.
func compareTimes(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}

// rowOf compares one step; from and to nil: there is no reading to hold it against.
func rowOf(run engineRun, from, to *reading, s *engineSum) EngineRow {
	row := EngineRow{
		Worker: run.worker, Engine: run.epoch, Served: s.served, Probes: s.probes, Cut: s.cut, Unknown: s.unknown, Verdict: Unread,
		Prompt: EngineCount{nil, s.prompt.said, s.prompt.least, s.prompt.most}, Completion: EngineCount{nil, s.completion.said, s.completion.least, s.completion.most},
	}
	if to == nil {
		return row
	}
	row.From, row.To, row.Moment = bound(from.time), bound(to.time), to.moment
	row.Prompt.Engine, row.Completion.Engine = growth(from.prompt, to.prompt), growth(from.completion, to.completion)
	row.Verdict = row.verdict()
	return row
}

func growth(from, to *int64) *int64 {
	if from == nil || to == nil {
		return nil
	}
	n := *to - *from
	return &n
}

func (r *EngineRow) verdict() Verdict {
	died := r.Moment == usage.MomentLost
	switch {
	case !r.Prompt.fits(died) || !r.Completion.fits(died):
		return Differs
	case r.Prompt.Engine == nil && r.Completion.Engine == nil:
		return NoCounters
	case died:
		return Bounded
	}
	return Agrees
}

// fits tells whether what the engine counted is within the bounds. Of one that died nobody knows what it counted last.
func (c *EngineCount) fits(died bool) bool {
	return c.Engine == nil || *c.Engine <= c.Most && *c.Engine >= 0 && (died || *c.Engine >= c.Least)
}

func (c *EngineCount) String() string {
	if c.Least == c.Most {
		return fmt.Sprintf("counted %s, journaled are %d", count(c.Engine), c.Most)
	}
	return fmt.Sprintf("counted %s, journaled are %d, and it may have counted %d to %d", count(c.Engine), c.Records, c.Least, c.Most)
}

// tellEngine makes a problem of a difference.
func (a *Audit) tellEngine(row EngineRow, at mark) {
	if row.Verdict != Differs {
		return
	}
	var list []string
	for _, c := range []struct {
		name string
		*EngineCount
	}{{"prompt", &row.Prompt}, {"completion", &row.Completion}} {
		if !c.fits(row.Moment == usage.MomentLost) {
			list = append(list, "of "+c.name+" tokens it "+c.String())
		}
	}
	p := Problem{Kind: Engine, Source: row.Worker, Epoch: at.epoch, Sequence: at.sequence, Engine: row.Engine, What: fmt.Sprintf(
		"the engine %s, from %s to %s: %s", row.Engine, row.From.Format(time.DateTime), row.To.Format(time.DateTime), strings.Join(list, "; "))}
	if a.writtenOff(at.source, at.epoch) {
		p.Kind = WrittenOff
	}
	a.ledger.problem(p)
}

// countEngine takes what a worker journaled of a generation, if it may be of the range. Each comes once.
func (a *Audit) countEngine(r *usagev1.Record) {
	if at := eventTime(r); r.EngineEpoch != "" && !a.after(at) {
		a.engines.count(r, !at.Before(a.opts.From))
	}
}

// judgeOthers takes what is of no admission: of each id there must be one content.
func (a *Audit) judgeOthers(list []*usagev1.Record) {
	byID := map[string]*usagev1.Record{}
	for _, r := range list {
		a.confront(r)
		before := byID[r.Id]
		switch {
		case before == nil:
			byID[r.Id] = r
			if r.Kind == usage.KindProbe {
				a.countEngine(r)
			}
		case content(before) == content(r) && markOf(before) == markOf(r):
			a.ledger.problem(about(Doubled, r, "%s is there again", r.Id))
		default:
			a.ledger.problem(about(Conflict, r, "%s is there with another content, %s/%d/%d", r.Id, before.Source, before.Epoch, before.Sequence))
		}
	}
}
