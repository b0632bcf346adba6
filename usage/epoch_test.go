package usage

import (
	"math/rand/v2"
	"testing"
)

// Against a dumb oracle: a map of all that was seen.
func TestEpochLogAgainstMap(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var e epochLog
		seen := map[uint64]uint32{}
		first := 1 + rng.Uint64N(5)
		highest := uint64(0)
		for range 300 {
			seq := first + rng.Uint64N(120)
			sum := uint32(seq * 77)
			if rng.IntN(10) == 0 {
				sum++
			}
			if len(seen) == 0 {
				seq = first
			}
			want := fresh
			if old, ok := seen[seq]; ok && old == sum {
				want = repeated
			} else if ok {
				want = clashing
			}
			if got := e.see(seq, sum); got != want {
				t.Fatalf("seed %d: see(%d, %d) = %d, want %d", seed, seq, sum, got, want)
			}
			if want == fresh {
				seen[seq] = sum
				highest = max(highest, seq)
			}
		}
		missing := uint64(0)
		for _, m := range e.missing {
			for n := m.from; n <= m.to; n++ {
				missing++
				if _, ok := seen[n]; ok {
					t.Fatalf("seed %d: %d is said to be missing", seed, n)
				}
			}
		}
		if e.next != highest+1 || e.records != uint64(len(seen)) || highest-first+1 != uint64(len(seen))+missing {
			t.Fatalf("seed %d: next %d, records %d, missing %d; seen %d up to %d", seed, e.next, e.records, missing, len(seen), highest)
		}
	}
}

func TestEpochLogForgetsWhatNoWriterRepeats(t *testing.T) {
	var e epochLog
	for seq := uint64(1); seq <= batchRecords+1; seq++ {
		e.see(seq, 0)
	}
	if got := e.see(2, 0); got != repeated {
		t.Errorf("one batch back: %d", got)
	}
	if got := e.see(1, 0); got != clashing {
		t.Errorf("longer ago than one batch: %d", got)
	}
}
