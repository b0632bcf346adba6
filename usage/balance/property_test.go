package balance

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

var (
	spoolTraits = Traits{Whole: true, Complete: true}
	topicTraits = Traits{Whole: true, Slack: slack}
)

func worldOptions(t testing.TB) Options {
	return Options{Now: worldStart.Add(1000 * time.Hour), Settle: time.Hour, CutBound: DefaultCutBound, TempDir: t.TempDir()}
}

// TestHistoriesBalance: what was not touched balances, in spools and in Kafka, as a whole and hour by hour, and the sums are
// those of the world.
func TestHistoriesBalance(t *testing.T) {
	for seed := range uint64(2) {
		w := newWorld(seed).live(1500)
		items := w.spools()
		whole := auditOf(t, worldOptions(t), spoolTraits, items)
		w.assertSums(t, whole)
		shipped := w.topics()
		kafka := auditOf(t, worldOptions(t), topicTraits, shipped)
		w.assertSums(t, kafka)
		if want := uint64(len(shipped) - len(items)); kafka.Counts[Doubled] != want || want == 0 {
			t.Errorf("%d of %d doubles are told", kafka.Counts[Doubled], want)
		}
		var sum Row
		for hour := worldStart; hour.Before(w.now); hour = hour.Add(time.Hour) {
			opts := worldOptions(t)
			opts.From, opts.To = hour, hour.Add(time.Hour)
			r := auditOf(t, opts, topicTraits, w.topics())
			assertBalanced(t, r)
			r.Total.Doubled = 0
			sum.add(r.Total)
		}
		total := whole.Total
		if sum != total {
			t.Errorf("hour by hour there is %+v, as a whole %+v", sum, total)
		}
	}
}

func assertBalanced(t *testing.T, r *Report) {
	t.Helper()
	if !r.Balanced || len(r.Problems) > 0 {
		t.Fatalf("an untouched history does not balance: %v", r.Problems)
	}
}

// assertSums adds the records up in the most simple way.
func (w *world) assertSums(t *testing.T, r *Report) {
	t.Helper()
	assertBalanced(t, r)
	var want Row
	for _, list := range w.journal {
		for _, rec := range list {
			switch rec.Kind {
			case usage.KindAdmitted:
				want.Admitted++
			case usage.KindUsage:
				want.Usage++
				want.PromptTokens += rec.GetPromptTokens()
				want.CompletionTokens += rec.GetCompletionTokens()
			case usage.KindServed:
				want.Served++
			}
		}
	}
	got := r.Total
	if got.Admitted != uint64(w.n) || got.Admitted != want.Admitted || got.Usage != want.Usage || got.Served != want.Served ||
		got.PromptTokens != want.PromptTokens || got.CompletionTokens != want.CompletionTokens || got.Open != 0 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// worldKinds are the kinds of record in a history.
var worldKinds = slices.Sorted(maps.Keys(worldTopics))

// TestTamperingIsNamed touches one record of a history, and wants it named, and nothing else.
func TestTamperingIsNamed(t *testing.T) {
	kinds := map[Kind]int{}
	for seed := range uint64(3) {
		w := newWorld(seed).live(200)
		spools, topics := w.spools(), w.topics()
		for _, kind := range worldKinds {
			for _, name := range slices.Sorted(maps.Keys(tampering)) {
				touch := tampering[name]
				w.tamper(t, kind, name, touch, spools, spoolTraits, kinds)
				if name != "reorder" && name != "double" { // of a record that was sent twice nobody can tell
					w.tamper(t, kind, name, touch, topics, topicTraits, kinds)
				}
			}
		}
	}
	for _, k := range []Kind{MissingUsage, MissingAdmitted, MissingServed, Tokens, Disagreement, Clash, Gap, OutOfOrder, Damaged, Doubled, Conflict, Altered, Engine} {
		if kinds[k] == 0 {
			t.Errorf("no history had %s: %v", k, kinds)
		}
	}
}

// TestOneInAHundredThousand touches one record of each kind in each way, in one large history.
func TestOneInAHundredThousand(t *testing.T) {
	requests := 34_000
	if testing.Short() {
		requests = 4_000
	}
	w := newWorld(99).live(requests)
	items := w.spools()
	t.Logf("%d records", len(items))
	testMemory = 1 << 20 // most of it on disk
	defer func() { testMemory = 0 }()
	var all []*usagev1.Record
	by := map[string][]*usagev1.Record{}
	for _, kind := range worldKinds {
		for _, name := range slices.Sorted(maps.Keys(tampering)) {
			i := w.some(kind, items)
			for slices.ContainsFunc(all, func(r *usagev1.Record) bool { return near(r, items[i].Record) }) {
				i = w.some(kind, items)
			}
			by[kind+": "+name+" "+items[i].Record.Id] = []*usagev1.Record{items[i].Record}
			var touched []*usagev1.Record
			items, touched = tampering[name](w, items, i)
			all = append(all, touched...)
		}
	}
	report := auditOf(t, worldOptions(t), spoolTraits, items)
	said := append(append([]Problem{}, report.Problems...), report.Notes...)
	for name, touched := range by {
		if !slices.ContainsFunc(said, func(p Problem) bool { return speaksOf(p, touched, "") }) {
			t.Errorf("%s is not noticed", name)
		}
	}
	for _, p := range said {
		if !speaksOf(p, all, "") {
			t.Errorf("nobody has touched %v", p)
		}
	}
}

// near tells whether what is said of one record may be meant for the other one.
func near(a, b *usagev1.Record) bool {
	return a.Source == b.Source && a.Epoch == b.Epoch && a.Sequence < b.Sequence+5 && b.Sequence < a.Sequence+5 || a.Admission != "" && a.Admission == b.Admission
}

// tampering does something to the record i of a copy. It returns what it has touched.
var tampering = map[string]func(w *world, items []Item, i int) (after []Item, touched []*usagev1.Record){
	"delete": func(_ *world, items []Item, i int) ([]Item, []*usagev1.Record) {
		r := items[i].Record
		kept := items[:0]
		for _, it := range items {
			if it.Record.Id != r.Id || it.Record.Source != r.Source { // all that were sent
				kept = append(kept, it)
			}
		}
		return kept, []*usagev1.Record{r}
	},
	"double": func(_ *world, items []Item, i int) ([]Item, []*usagev1.Record) {
		return append(items, items[i]), []*usagev1.Record{items[i].Record}
	},
	"alter": func(w *world, items []Item, i int) ([]Item, []*usagev1.Record) {
		before := items[i].Record
		r := proto.CloneOf(before)
		switch n := w.rand.IntN(6); {
		case n == 0:
			r.Team += "x"
		case n == 1:
			r.Key += "x"
		case n == 2 && r.Admission != "":
			r.Id = "x" + r.Id
		case r.Engine != nil:
			r.Engine.PromptTokens = proto.Int64(*r.Engine.PromptTokens + 1000)
		case r.Checkpoint != nil:
			r.Checkpoint.Count++
		case r.CompletionTokens != nil:
			r.CompletionTokens = proto.Int64(*r.CompletionTokens + 1000)
		default:
			r.Model = "cheap"
		}
		items[i].Record, items[i].Body = r, usage.AppendJSON(nil, r)
		return items, []*usagev1.Record{before, r}
	},
	"renumber": func(w *world, items []Item, i int) ([]Item, []*usagev1.Record) {
		r := proto.CloneOf(items[i].Record)
		before := proto.CloneOf(r)
		if r.Sequence > 1 {
			r.Sequence--
		} else {
			r.Sequence++
		}
		other := proto.CloneOf(r)
		items[i].Record, items[i].Body = r, usage.AppendJSON(nil, r)
		for _, it := range items {
			if markOf(it.Record) == markOf(r) && it.Record.Id != r.Id {
				other = it.Record
			}
		}
		return items, []*usagev1.Record{before, r, other}
	},
	"reorder": func(_ *world, items []Item, i int) ([]Item, []*usagev1.Record) {
		j := i + 1
		if j == len(items) || items[j].Lane != items[i].Lane || items[j].Record.Epoch != items[i].Record.Epoch {
			j = i - 1
		}
		touched := []*usagev1.Record{items[i].Record, items[j].Record}
		items[i], items[j] = items[j], items[i]
		return items, touched
	},
}

// tamper wants a word of what is touched, and of nothing else.
func (w *world) tamper(t *testing.T, kind, name string, touch func(*world, []Item, int) ([]Item, []*usagev1.Record), items []Item, traits Traits, kinds map[Kind]int) {
	t.Helper()
	i := w.some(kind, items)
	target := items[i].Record
	after, touched := touch(w, append([]Item{}, items...), i)
	report := auditOf(t, worldOptions(t), traits, after)
	said := append(append([]Problem{}, report.Problems...), report.Notes...)
	named := 0
	for _, p := range said {
		switch {
		case speaksOf(p, touched, after[min(i, len(after)-1)].Place):
			named++
			kinds[p.Kind]++
		case p.Kind != Doubled || traits == spoolTraits: // Kafka has doubles of its own
			t.Errorf("%s of %s: %v", name, target.Id, p)
		}
	}
	if named == 0 || name != "double" && report.Balanced {
		t.Errorf("%s of %s %s/%d/%d is not noticed", name, target.Id, target.Source, target.Epoch, target.Sequence)
	}
}

// some is the place of a record of a kind that is not the last of its epoch, or next to it: the package's words say that no gap
// tells of that.
func (w *world) some(kind string, items []Item) int {
	last := map[[2]any]uint64{}
	for _, list := range w.journal {
		for _, r := range list {
			last[[2]any{r.Source, r.Epoch}] = r.Sequence
		}
	}
	start := w.rand.IntN(len(items))
	for n := range items {
		i := (start + n) % len(items)
		if r := items[i].Record; r.Kind == kind && r.Sequence+1 < last[[2]any{r.Source, r.Epoch}] {
			return i
		}
	}
	panic("the history has no " + kind)
}

func speaksOf(p Problem, touched []*usagev1.Record, place string) bool {
	for _, r := range touched {
		here := p.Source == r.Source && p.Epoch == r.Epoch
		if p.Admission != "" && p.Admission == r.Admission || here && p.Sequence == r.Sequence ||
			here && p.Kind == Altered && p.Sequence+2 > r.Sequence && r.Sequence+2 > p.Sequence || // what a record says of the one before
			p.Kind == Engine && p.Source == r.Source && p.Engine == r.EngineEpoch ||
			p.Kind == Damaged && (place != "" && strings.Contains(p.What, place) || strings.Contains(p.What, strconv.Quote(r.Id))) {
			return true
		}
	}
	return false
}

// TestNumbers compares the set with a plain one.
func TestNumbers(t *testing.T) {
	w := newWorld(5)
	for range 200 {
		s, plain := numbers{}, map[uint64]bool{}
		most := uint64(1 + w.rand.IntN(20_000))
		for range w.rand.IntN(3000) {
			n := w.rand.Uint64N(most)
			if s.add(n) == plain[n] {
				t.Fatalf("%d: added %v", n, plain[n])
			}
			plain[n] = true
		}
		from, to := w.rand.Uint64N(most), w.rand.Uint64N(most)
		missing := map[uint64]bool{}
		s.missing(from, to, func(g span) {
			for n := g.from; n <= g.to; n++ {
				missing[n] = true
			}
		})
		for n := range most {
			if want := n >= from && n <= to && !plain[n]; missing[n] != want {
				t.Fatalf("%d between %d and %d: missing %v, want %v", n, from, to, missing[n], want)
			}
		}
	}
	far := numbers{}
	far.add(1 << 63)
	far.missing(1, 1<<63+1, func(g span) {
		if g != (span{1, 1<<63 - 1}) && g != (span{1<<63 + 1, 1<<63 + 1}) {
			t.Errorf("%v is missing", g)
		}
	})
}

// TestNamedAreBounded: all problems are counted, some are named; and no file stays behind.
func TestNamedAreBounded(t *testing.T) {
	w := newWorld(3).live(300)
	var items []Item
	for _, it := range w.spools() {
		if it.Record.Kind != usage.KindUsage {
			items = append(items, it)
		}
	}
	testMemory = 10_000 // on disk
	defer func() { testMemory = 0 }()
	opts := worldOptions(t)
	opts.Named = 7
	r := auditOf(t, opts, spoolTraits, items)
	if len(r.Problems) != 7 || r.Counts[MissingUsage] != 300 || r.Total.MissingUsage != 300 || r.Balanced {
		t.Errorf("%d named, %v", len(r.Problems), r.Counts)
	}
	if left, err := os.ReadDir(opts.TempDir); err != nil || len(left) > 0 {
		t.Errorf("%v stay behind, %v", left, err)
	}
	opts.Repair = func(*usagev1.Record) error { return fmt.Errorf("the disk is full") }
	a := New(opts, spoolTraits)
	defer a.Close()
	for _, it := range items {
		if err := a.Add(it); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Balance(nil); err == nil || err.Error() != "the disk is full" {
		t.Errorf("a repair that fails: %v", err)
	}
}

// TestPublished: what goes to others adds up to what was found.
func TestPublished(t *testing.T) {
	w := newWorld(4).live(200)
	items := w.spools()
	i := w.some(usage.KindUsage, items)
	victim := items[i].Record
	r := auditOf(t, worldOptions(t), spoolTraits, slices.Delete(items, i, i+1))
	var rows, sources, all usagev1.Balance
	ids := map[string]bool{}
	for _, rec := range r.Published() {
		b, to := rec.Balance, &rows
		switch {
		case rec.Kind != usage.KindBalance || ids[rec.Id] || !strings.HasPrefix(rec.Id, fmt.Sprintf("balance/%d/", r.At.UnixMilli())):
			t.Errorf("%v", rec)
		case b.Hour == nil && b.Of == "":
			to = &all
		case b.Hour == nil:
			to = &sources
		}
		ids[rec.Id] = true
		to.Admitted, to.Usage, to.Served, to.MissingUsage, to.Gaps = to.Admitted+b.Admitted, to.Usage+b.Usage, to.Served+b.Served, to.MissingUsage+b.MissingUsage, to.Gaps+b.Gaps
		if b.Balanced != (b.Of != "" && b.Of != victim.Source || b.Hour != nil && b.MissingUsage == 0) {
			t.Errorf("%v", rec)
		}
	}
	if all.Admitted != 200 || all.Usage != 199 || all.MissingUsage != 1 || all.Gaps != 1 {
		t.Errorf("%v", &all)
	}
	rows.Gaps = 1 // of no hour
	if !proto.Equal(&rows, &all) || !proto.Equal(&sources, &all) {
		t.Errorf("rows %v, sources %v, all %v", &rows, &sources, &all)
	}
}
