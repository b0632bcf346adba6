package balance

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// shownNotes is how many notes of a kind are shown to people; all are in the JSON.
const shownNotes = 5

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	r.writeRows(t)
	r.writeSources(t)
	r.writeEngines(t)
	if err := t.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
	writeProblems(w, "PROBLEMS", r.Problems, r.Counts, len(r.Problems))
	writeProblems(w, "NOTES", r.Notes, r.Counts, shownNotes)
	_, err := fmt.Fprintln(w, r.verdict())
	return err
}

type column struct {
	name   string
	always bool
	of     func(Row) int64
}

// columns of the table. One that is not always shown is left out where it would be empty.
var columns = []column{
	{"admitted", true, func(r Row) int64 { return int64(r.Admitted) }},
	{"usage", true, func(r Row) int64 { return int64(r.Usage) }},
	{"served", true, func(r Row) int64 { return int64(r.Served) }},
	{"open", false, func(r Row) int64 { return int64(r.Open) }},
	{"prompt", true, func(r Row) int64 { return r.PromptTokens }},
	{"completion", true, func(r Row) int64 { return r.CompletionTokens }},
	{"cut", false, func(r Row) int64 { return int64(r.Cut) }},
	{"cut tokens", false, func(r Row) int64 { return r.CutTokens }},
	{"no usage", false, func(r Row) int64 { return int64(r.MissingUsage) }},
	{"no admitted", false, func(r Row) int64 { return int64(r.MissingAdmitted) }},
	{"no served", false, func(r Row) int64 { return int64(r.MissingServed) }},
	{"tokens differ", false, func(r Row) int64 { return int64(r.TokenDifferences) }},
	{"conflicts", false, func(r Row) int64 { return int64(r.Conflicts) }},
	{"doubled", false, func(r Row) int64 { return int64(r.Doubled) }},
	{"repaired", false, func(r Row) int64 { return int64(r.Repaired) }},
	{"lost", false, func(r Row) int64 { return int64(r.Lost) }},
}

func (r *Report) writeRows(t io.Writer) {
	shown := slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return !c.always && c.of(r.Total) == 0 })
	fmt.Fprint(t, "hour (UTC)\tsource\tteam\t")
	for _, c := range shown {
		fmt.Fprint(t, c.name, "\t")
	}
	fmt.Fprintln(t)
	for i, row := range append(slices.Clone(r.Rows), r.Total) {
		hour := row.Hour.Format("2006-01-02 15:04")
		if i == len(r.Rows) {
			hour = "all"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t", hour, row.Source, row.Team)
		for _, c := range shown {
			if n := c.of(row); n == 0 {
				fmt.Fprint(t, "-\t")
			} else {
				fmt.Fprint(t, n, "\t")
			}
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t)
}

func (r *Report) writeSources(t io.Writer) {
	fmt.Fprintln(t, "source\tepoch\trecords\tsequences\tjudged up to\tmissing\ttold until (UTC)\t")
	for _, s := range r.Sources {
		if strings.HasPrefix(s.Source, publishPrefix) && s.Missing == 0 {
			continue // what earlier runs found, an epoch each
		}
		off := ""
		if s.WrittenOff {
			off = "written off"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d..%d\t%d\t%d\t%s\t%s\n", s.Source, s.Epoch, s.Records, s.First, s.Last, s.Judged, s.Missing, s.Told.Format(time.DateTime), off)
	}
	fmt.Fprintln(t)
}

func (r *Report) writeEngines(t io.Writer) {
	if len(r.Engines) == 0 {
		return
	}
	fmt.Fprintln(t, "engine of\trun\tread at (UTC)\twhen\tserved\tprobes\tcut\tprompt\tdiffers by\tcompletion\tdiffers by\tverdict\t")
	for _, e := range r.Engines {
		at := "-"
		if e.To != nil {
			at = e.To.Format(time.DateTime)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t\n", e.Worker, e.Engine, at, cmp.Or(e.Moment, "-"), e.Served, e.Probes, e.Cut,
			e.Prompt.counted(), e.Prompt.difference(), e.Completion.counted(), e.Completion.difference(), e.Verdict)
	}
	fmt.Fprintln(t)
}

func (c *EngineCount) counted() string {
	if c.Engine == nil {
		return "-"
	}
	return strconv.FormatInt(*c.Engine, 10)
}

// difference is how much more the engine counted than the records say, and between what it may lie.
func (c *EngineCount) difference() string {
	switch {
	case c.Engine == nil:
		return "-"
	case c.Least == c.Most:
		return fmt.Sprintf("%+d", *c.Engine-c.Records)
	}
	return fmt.Sprintf("%+d of %+d..%+d", *c.Engine-c.Records, c.Least-c.Records, c.Most-c.Records)
}

func writeProblems(w io.Writer, head string, list []Problem, counts map[Kind]uint64, most int) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(w, head)
	told := map[Kind]uint64{}
	for _, p := range list {
		if told[p.Kind]++; told[p.Kind] <= uint64(most) {
			fmt.Fprintln(w, " ", p)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(told)) {
		if shown := min(told[kind], uint64(most)); counts[kind] > shown {
			fmt.Fprintf(w, "  %s: %d more\n", kind, counts[kind]-shown)
		}
	}
	fmt.Fprintln(w)
}

// verdict is the last line.
func (r *Report) verdict() string {
	var open string
	if r.Total.Open > 0 {
		open = fmt.Sprintf("; open, and not judged yet: %d", r.Total.Open)
	}
	if r.Balanced {
		return fmt.Sprintf("It balances: %d admissions, %d usage records, %d served%s.", r.Total.Admitted, r.Total.Usage, r.Total.Served, open)
	}
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(r.Counts)) {
		if kind.Fails() {
			list = append(list, fmt.Sprintf("%d %s", r.Counts[kind], kind))
		}
	}
	return fmt.Sprintf("It does not balance: %s%s.", strings.Join(list, ", "), open)
}
