package balance

import (
	"fmt"
	"os"
	"testing"
	"time"

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
		w := newWorld(seed).live(600)
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
