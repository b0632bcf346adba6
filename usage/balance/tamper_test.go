package balance

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// worldKinds are the kinds of record in a history.
var worldKinds = slices.Sorted(maps.Keys(worldTopics))

// TestTamperingIsNamed touches one record of a history, and wants it named, and nothing else.
func TestTamperingIsNamed(t *testing.T) {
	kinds := map[Kind]int{}
	for seed := range uint64(2) {
		w := newWorld(seed).live(120)
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

// TestBehindTheEnd: a record that fits the chain and stands behind the checkpoint that closes its epoch is named.
func TestBehindTheEnd(t *testing.T) {
	w := newWorld(8).live(100)
	last := w.journal["door/a"][len(w.journal["door/a"])-1]
	forged := &usagev1.Record{
		Id: usage.AdmittedID("forged"), Kind: usage.KindAdmitted, Admission: "forged", Team: "sales", AdmittedAt: stamp(w.now), Source: "door/a",
		Epoch: last.Epoch, Sequence: last.Sequence + 1, Previous: fmt.Sprintf("%x", sha256.Sum256(w.body[last])),
	}
	r := auditOf(t, worldOptions(t), spoolTraits, append(w.spools(), Item{Record: forged, Body: usage.AppendJSON(nil, forged), Lane: "door/a"}))
	if r.Counts[Altered] != 1 || r.Problems[0].Kind != Altered || r.Problems[0].Sequence != forged.Sequence {
		t.Errorf("%v", r.Problems)
	}
}

// TestNobodySigns: where keys are pinned, an epoch without a checkpoint is as bad as one by another key.
func TestNobodySigns(t *testing.T) {
	w := newWorld(8).live(100)
	opts := worldOptions(t)
	opts.Trusts = func(source, _ string) bool { return source != "worker/w1" }
	items := slices.DeleteFunc(w.spools(), func(it Item) bool { return it.Record.Source == "worker/w2" && it.Record.Checkpoint != nil })
	told := map[string]bool{}
	for _, p := range auditOf(t, opts, spoolTraits, items).Problems {
		if p.Kind == Untrusted {
			told[p.Source] = true
		}
	}
	if !maps.Equal(told, map[string]bool{"worker/w1": true, "worker/w2": true}) {
		t.Errorf("%v", told)
	}
}
