package balance

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// TestStories plays what doors and workers journal, and shows what the audit makes of it. Rewrite with -rewrite.
//
//	tell                          lines of records, see story.line
//	judge [now=] [settle=] …      the report of all that was told so far
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{sequence: map[string]uint64{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "tell":
				for line := range strings.Lines(d.Input) {
					s.line(t, strings.Fields(line))
				}
				return ""
			case "judge":
				return s.judge(t, d)
			}
			t.Fatalf("no such command: %s", d.Cmd)
			return ""
		})
	})
}

type story struct {
	sequence map[string]uint64
	items    []Item
	repairs  uint64 // epochs
}

const storyDay = "2026-03-01T"

func clock(t *testing.T, s string) time.Time {
	at, err := time.Parse(time.RFC3339, storyDay+s+"Z")
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// line reads SOURCE/EPOCH KIND ADMISSION TIME [OUTCOME] [NAME=VALUE…]. The time is that of admission for admitted, of the end for the
// others. lost: the number is taken, the record is nowhere. twice: it is there twice. slip: it stands behind the next one.
func (s *story) line(t *testing.T, words []string) {
	t.Helper()
	at := strings.LastIndex(words[0], "/")
	epoch, err := strconv.ParseUint(words[0][at+1:], 10, 64)
	if err != nil || len(words) < 4 {
		t.Fatalf("%v: %v", words, err)
	}
	r := &usagev1.Record{
		Source: words[0][:at], Epoch: epoch, Kind: words[1], Admission: words[2], Key: "k", Team: "research", Model: "m", Endpoint: "e",
		CountedFrom: usage.CountedEngine, Attempt: 1, AdmittedAt: stamp(clock(t, words[3])),
	}
	s.sequence[words[0]]++
	r.Sequence = s.sequence[words[0]]
	lost, times, slip := false, 1, false
	for _, w := range words[4:] {
		name, value, is := strings.Cut(w, "=")
		switch {
		case w == "lost" && words[1] != usage.KindEngine:
			lost = true
		case w == "twice":
			times = 2
		case w == "slip":
			slip = true
		case !is:
			r.Outcome = w
		default:
			setField(t, r, name, value)
		}
	}
	finish(r, words[3], t)
	if lost {
		return
	}
	for range times {
		s.items = append(s.items, Item{Record: r, Lane: r.Source, Place: "journal"})
	}
	if n := len(s.items); slip {
		s.items[n-1], s.items[n-2] = s.items[n-2], s.items[n-1]
	}
}

func setField(t *testing.T, r *usagev1.Record, name, value string) {
	t.Helper()
	switch name {
	case "tokens": // prompt/completion
		p, c, _ := strings.Cut(value, "/")
		for to, text := range map[**int64]string{&r.PromptTokens: p, &r.CompletionTokens: c} {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			*to = &n
		}
	case "admitted": // of a usage record
		r.AdmittedAt = stamp(clock(t, value))
	case "team":
		r.Team = value
	case "worker":
		r.Worker = value
	case "leg":
		r.Id = usage.ServedID(r.Admission, r.Attempt, value)
	case "attempt":
		r.Attempt = uint32(value[0] - '0')
	case "price": // of a million tokens, each kind
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r.Price = &usagev1.Price{Currency: "USD", Input: n, Cached: n, Output: n}
	case "cost":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r.Cost = &n
	case "choices":
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		r.Choices = proto.Uint32(uint32(n))
	case "engine":
		r.EngineEpoch = value
	case "anomaly":
		r.Anomalies = append(r.Anomalies, value)
	case "number":
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r.Sequence = n
	default:
		t.Fatalf("no such field: %s", name)
	}
}

// finish sets what follows from the kind.
func finish(r *usagev1.Record, at string, t *testing.T) {
	t.Helper()
	switch r.Kind {
	case usage.KindAdmitted:
		r.Id, r.CountedFrom, r.Attempt = usage.AdmittedID(r.Admission), "", 0
	case usage.KindUsage:
		r.Id, r.EndedAt = usage.UsageID(r.Admission), stamp(clock(t, at))
	case usage.KindServed:
		r.Id, r.EndedAt, r.AdmittedAt = cmp.Or(r.Id, usage.ServedID(r.Admission, r.Attempt, "main")), r.AdmittedAt, nil
	case usage.KindProbe, usage.KindEngine: // ADMISSION is ENGINE-EPOCH#NUMBER
		run, n, _ := strings.Cut(r.Admission, "#")
		number, err := strconv.ParseUint(n, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r.Id, r.EngineEpoch, r.EndedAt = usage.ProbeID(r.Source, run, number), run, stamp(clock(t, at))
		if r.Kind == usage.KindEngine {
			r.Id = usage.EngineID(r.Source, run, number)
			r.Engine = &usagev1.EngineCounters{Moment: r.Outcome, PromptTokens: r.PromptTokens, CompletionTokens: r.CompletionTokens}
			r.PromptTokens, r.CompletionTokens, r.Outcome = nil, nil, ""
		}
		r.Admission, r.AdmittedAt, r.Team, r.Key = "", nil, "", ""
	case usage.KindBalance:
		r.Id, r.EndedAt, r.AdmittedAt = writeOffPrefix+r.Admission, stamp(clock(t, at)), nil
		r.Admission = ""
	default:
		r.Id = r.Kind + "/" + r.Admission
	}
	if r.CompletionTokens == nil && r.Kind != usage.KindAdmitted && r.Kind != usage.KindProbe {
		r.CountedFrom = usage.CountedNone
	}
}

// judge takes now, settle (1h), from, to, write-off and repair, and kafka: the records may still be on their way.
func (s *story) judge(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	text := func(name, otherwise string) string {
		if d.HasArg(name) {
			d.ScanArgs(t, name, &otherwise)
		}
		return otherwise
	}
	settle, err := time.ParseDuration(text("settle", "1h"))
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Now: clock(t, text("now", "12:00:00")), Settle: settle, CutBound: DefaultCutBound, TempDir: t.TempDir()}
	if d.HasArg("from") {
		opts.From = clock(t, text("from", ""))
	}
	if d.HasArg("to") {
		opts.To = clock(t, text("to", ""))
	}
	if d.HasArg("cut-bound") {
		d.ScanArgs(t, "cut-bound", &opts.CutBound)
	}
	if d.HasArg("write-off") {
		opts.WriteOff = []string{text("write-off", "")}
	}
	traits := Traits{Whole: true, Complete: true}
	if d.HasArg("kafka") {
		traits = Traits{Whole: true, Slack: 2}
	}
	var repaired []*usagev1.Record
	if d.HasArg("repair") {
		opts.Repair = func(r *usagev1.Record) error { repaired = append(repaired, r); return nil }
	}
	report := auditOf(t, opts, traits, s.items)
	var out strings.Builder
	if err := report.Write(&out); err != nil {
		t.Fatal(err)
	}
	s.repaired(&out, repaired)
	return out.String()
}

// repaired journals repairs.
func (s *story) repaired(out *strings.Builder, list []*usagev1.Record) {
	if len(list) == 0 {
		return
	}
	s.repairs++
	fmt.Fprintf(out, "repairs\n")
	for i, r := range list {
		r.Source, r.Epoch, r.Sequence = RepairSource("ops"), s.repairs, uint64(i+1)
		fmt.Fprintf(out, "  %s team %s, %s, %s/%s tokens from %q, %v\n", r.Id, r.Team, r.Outcome, count(r.PromptTokens), count(r.CompletionTokens), r.CountedFrom, r.Anomalies)
		s.items = append(s.items, Item{Record: r, Lane: r.Source, Place: "journal"})
	}
}

// testMemory bounds what is held before it goes to disk; 0: as always.
var testMemory int

// auditOf runs an audit of copies.
func auditOf(t testing.TB, opts Options, traits Traits, items []Item) *Report {
	t.Helper()
	a := New(opts, traits)
	defer a.Close()
	if testMemory > 0 {
		a.buckets.most = testMemory
	}
	for _, it := range items {
		if it.Record != nil {
			it.Record = proto.CloneOf(it.Record)
		}
		if err := a.Add(it); err != nil {
			t.Fatal(err)
		}
	}
	report, err := a.Balance(nil)
	if err != nil {
		t.Fatal(err)
	}
	return report
}
