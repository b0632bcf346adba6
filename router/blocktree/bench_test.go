package blocktree

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/zeebo/xxh3"
)

// fill makes a tree of a million blocks that a thousand workers hold, as coding agents would fill it: each worker has
// sessions of its own behind system prompts that all share, and the first one's longest session is returned as a prompt of
// about 320 KB.
func fill(t *Tree) (prompt []byte) {
	const workers, blocks, longest, system = 1000, 1000, 5500, 60
	r := rand.New(rand.NewPCG(1, 1))
	text := func(n int) []byte {
		b := make([]byte, 0, n*58)
		for range n * 58 {
			b = append(b, byte('a'+r.IntN(26)))
		}
		return b
	}
	shared := text(system)
	store := func(worker int, key *uint32, b []byte, parent uint32, tier Tier) uint32 {
		for len(b) > 0 {
			n := min(len(b), 40+int(b[0])%32)
			*key++
			if err := t.Store(worker, Block{Key: *key, Parent: parent, Length: uint32(n), Hash: xxh3.HashSeed(b[:n], seed), Tier: tier}); err != nil {
				panic(err)
			}
			parent, b = *key, b[n:]
		}
		return parent
	}
	for worker := range workers {
		var key uint32
		n := blocks
		if worker == 0 {
			n = longest
		}
		base := store(worker, &key, shared, 0, Device)
		own := text(n)
		store(worker, &key, own, base, Tier(worker%2))
		if worker == 0 {
			prompt = append(append([]byte(nil), shared...), own...)
		}
	}
	return prompt
}

func BenchmarkFind(b *testing.B) {
	t := New(seed, 1<<20)
	prompt := fill(t)
	b.Run("tree", func(b *testing.B) {
		b.SetBytes(int64(len(prompt)))
		b.ReportAllocs()
		var w Walk
		for b.Loop() {
			if w.Find(t, 0, prompt); len(w.found) != 1000 {
				b.Fatal(len(w.found))
			}
		}
	})
	b.Run("xxh3", func(b *testing.B) {
		b.SetBytes(int64(len(prompt)))
		for b.Loop() {
			xxh3.HashSeed(prompt, seed)
		}
	})
}

func BenchmarkFill(b *testing.B) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		t := New(seed, 1<<20)
		fill(t)
		runtime.GC()
		runtime.ReadMemStats(&after)
		blocks, held := t.Size()
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(held), "B/held")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(held), "ns/held")
		b.ReportMetric(float64(blocks), "blocks")
		runtime.KeepAlive(t)
	}
}

// BenchmarkEvents stores the turns of sessions in worker after worker, and removes as many blocks of the eldest sessions, from
// their ends, as engines do.
func BenchmarkEvents(b *testing.B) {
	const workers, turn, room = 100, 64, 10_000
	t := New(seed, 1<<20)
	type cache struct {
		next  uint32
		chain uint32 // the last block of the present session
	}
	caches := make([]cache, workers)
	var hash uint64
	events := 0
	for b.Loop() {
		for w := range caches {
			c := &caches[w]
			for range turn {
				key := c.next%room + 1
				if c.next >= room && c.next%turn == 0 { // the eldest turn goes, its last block first
					for i := range uint32(turn) {
						t.Remove(w, key+turn-1-i, Device)
						events++
					}
				}
				if c.next%(8*turn) == 0 {
					c.chain = 0
				}
				hash += 0x9e3779b97f4a7c15
				if err := t.Store(w, Block{Key: key, Parent: c.chain, Length: uint32(50 + hash>>60), Hash: hash}); err != nil {
					b.Fatal(err)
				}
				c.chain = key
				c.next++
				events++
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
	b.ReportMetric(0, "ns/op")
}
