package usage

import (
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// evidence is a journal of two epochs of 20 records and a checkpoint each, as records and as links.
func evidence(t *testing.T) []*usagev1.Record {
	t.Helper()
	dir := t.TempDir()
	for range 2 {
		s := signing(t, dir, Options{})
		for i := range 20 {
			s.Append(record(i))
		}
		closeSpool(t, s)
	}
	_, records := linksOf(t, dir)
	return records
}

func relink(t *testing.T, records []*usagev1.Record) (links []Link) {
	t.Helper()
	for _, r := range records {
		l, err := LinkOf(r, AppendJSON(nil, r))
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, l)
	}
	return links
}

// tampering with the first epoch of the evidence; want is in a mismatch, empty: there is none.
var tampering = map[string]struct {
	tamper func([]*usagev1.Record) []*usagev1.Record
	want   string
}{
	"nothing": {func(r []*usagev1.Record) []*usagev1.Record { return r }, ""},
	"a record altered": {func(r []*usagev1.Record) []*usagev1.Record {
		r[sequence(7)].CompletionTokens = proto.Int64(1)
		return r
	}, "7: it was altered"},
	"the last record altered": {func(r []*usagev1.Record) []*usagev1.Record {
		r[sequence(20)].Team = "x"
		return r
	}, "20: it was altered"},
	"a record altered, and what is said of it": {func(r []*usagev1.Record) []*usagev1.Record {
		r[sequence(7)].CompletionTokens = proto.Int64(1)
		r[sequence(8)].Previous = DigestOf(AppendJSON(nil, r[sequence(7)])).String()
		return r
	}, "8: it was altered"},
	"all that follows made anew": {func(r []*usagev1.Record) []*usagev1.Record {
		r[sequence(7)].CompletionTokens = proto.Int64(1)
		for n := uint64(8); n <= 21; n++ {
			r[sequence(n)].Previous = DigestOf(AppendJSON(nil, r[sequence(n-1)])).String()
		}
		return r
	}, "21: a checkpoint that proves nothing: it names one digest"},
	"the checkpoint too": {func(r []*usagev1.Record) []*usagev1.Record {
		r[sequence(7)].CompletionTokens = proto.Int64(1)
		for n := uint64(8); n <= 21; n++ {
			r[sequence(n)].Previous = DigestOf(AppendJSON(nil, r[sequence(n-1)])).String()
		}
		r[sequence(21)].Checkpoint.Digest = r[sequence(21)].Previous
		return r
	}, "21: a checkpoint that proves nothing: its signature"},
	"signed by another": {func(r []*usagev1.Record) []*usagev1.Record {
		signCheckpoint("door/main", r[sequence(21)].Checkpoint, ed25519.NewKeyFromSeed(make([]byte, 32)))
		return r
	}, ": a checkpoint that another key has signed"},
	"a record added behind the end": {func(r []*usagev1.Record) []*usagev1.Record {
		more := proto.CloneOf(r[sequence(20)])
		more.Sequence, more.Previous = 22, DigestOf(AppendJSON(nil, r[sequence(21)])).String()
		return append(r, more)
	}, "22: there are records up to sequence 22 behind"},
	"a record doubled": {func(r []*usagev1.Record) []*usagev1.Record { return append(r, r[sequence(9)]) }, ""},
	"the first one names another": {func(r []*usagev1.Record) []*usagev1.Record {
		r[0].Previous = r[1].Previous
		return r
	}, "1: it is the first"},
	"one without a word of the one before": {func(r []*usagev1.Record) []*usagev1.Record {
		r[sequence(5)].Previous = ""
		return r
	}, "1: 1 of its epoch's 21"},
	"a checkpoint of the future": {func(r []*usagev1.Record) []*usagev1.Record {
		r[sequence(21)].Checkpoint.Sequence = 30
		signCheckpoint("door/main", r[sequence(21)].Checkpoint, ed25519.NewKeyFromSeed(make([]byte, 32)))
		return r
	}, "21: a checkpoint that proves nothing: what it speaks of"},
}

// sequence is where a record of the first epoch stands.
func sequence(n uint64) int { return int(n) - 1 }

// Whoever tampers with the evidence is told on, in any order of reading.
func TestAuditorNamesTampering(t *testing.T) {
	records := evidence(t)
	for name, c := range tampering {
		t.Run(name, func(t *testing.T) {
			var list []*usagev1.Record
			for _, r := range records {
				list = append(list, proto.CloneOf(r))
			}
			links := relink(t, c.tamper(list))
			for seed := range uint64(20) {
				if seed > 0 {
					rand.New(rand.NewPCG(seed, 5)).Shuffle(len(links), func(i, j int) { links[i], links[j] = links[j], links[i] })
				}
				bad, _ := audit(links)
				if c.want == "" && len(bad) != 0 || c.want != "" && !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, c.want) }) {
					t.Fatalf("order %d: %q, want %q", seed, bad, c.want)
				}
			}
		})
	}
}

// A missing record is no mismatch: its number tells. What is proved does not change.
func TestAuditorPassesOverGaps(t *testing.T) {
	links := relink(t, evidence(t))
	for i := range links {
		some := slices.Delete(slices.Clone(links), i, i+1)
		if bad, proofs := audit(some); len(bad) != 0 || len(proofs) != 2 {
			t.Errorf("without %d: %q, %+v", i, bad, proofs)
		}
	}
}

// Read in order, it remembers nothing but the last record of each epoch.
func TestAuditorForgets(t *testing.T) {
	a := NewAuditor(func(m Mismatch) { t.Error(m) })
	for _, l := range relink(t, evidence(t)) {
		a.Add(l)
	}
	for _, c := range a.epochs {
		if len(c.is) != 1 || len(c.said) != 0 {
			t.Errorf("%+v", c)
		}
	}
}

func TestLinkOf(t *testing.T) {
	for _, r := range []*usagev1.Record{{Id: "a"}, {Id: "a", Sequence: 1, Previous: "x"}, {Id: "a", Sequence: 1, Previous: strings.Repeat("g", 64)}} {
		if l, err := LinkOf(r, nil); err == nil {
			t.Errorf("%v gives %+v", r, l)
		}
	}
}

func BenchmarkAuditor(b *testing.B) {
	r, a := typical(), NewAuditor(func(m Mismatch) { b.Fatal(m) })
	r.Source, r.Epoch = "door/main", 1
	links := make([]Link, b.N)
	var last Digest
	for i := range links {
		links[i] = Link{Source: r.Source, Epoch: 1, Sequence: uint64(i + 1), Chained: true, Previous: last, Digest: DigestOf(fmt.Appendf(nil, "%d", i))}
		last = links[i].Digest
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, l := range links {
		a.Add(l)
	}
}
