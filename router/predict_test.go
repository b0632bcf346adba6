package router

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// memory is the dumb index: the list of all that was sent.
type memory struct {
	ttl   time.Duration
	size  int
	sent  []sentPrompt
	alive map[string]int // life of each worker that is there
	lives int
}

type sentPrompt struct {
	prompt []byte
	worker string
	life   int
	at     time.Time
}

// overlap compares the prompt with everything, block by block.
func (m *memory) overlap(now time.Time, prompt []byte, worker string) int {
	deepest := 0
	for _, s := range m.sent {
		if s.worker != worker || s.life != m.alive[worker] || now.Sub(s.at) >= m.ttl {
			continue
		}
		n := 0
		for end := m.size; end <= min(len(prompt), len(s.prompt)) && bytes.Equal(prompt[:end], s.prompt[:end]); end += m.size {
			n++
		}
		deepest = max(deepest, n)
	}
	return deepest
}

// check looks at all that a tree promises of itself.
func (x *predictive) check(t testing.TB) {
	t.Helper()
	blocks, nodes := 0, 0
	children := map[*node]int{}
	for e, n := range x.edges {
		if n.parent != e.from || len(n.hashes) == 0 || n.hashes[0] != e.first || cap(n.hashes) > 2*len(n.hashes)+8 {
			t.Fatalf("edge %v leads to a node that is not its own: %v", e, n)
		}
		children[n.parent]++
		blocks += len(n.hashes)
	}
	seen := map[*node]bool{}
	for n := x.oldest; n != nil; n = n.newer {
		if seen[n.parent] || x.edges[edge{n.parent, n.hashes[0]}] != n || n.older != nil && n.older.used > n.used {
			t.Fatalf("a node out of order in the list")
		}
		seen[n] = true
		nodes++
	}
	if nodes != len(x.edges) || blocks != x.blocks || blocks > x.max {
		t.Fatalf("%d nodes in the list, %d in the tree; %d blocks, counted %d, at most %d", nodes, len(x.edges), blocks, x.blocks, x.max)
	}
}

// variant gives prompts that share beginnings of every length: a conversation, its branches, and ends inside a block.
func variant(r *rand.Rand) []byte {
	var b []byte
	for i := 0; i < 12 && r.IntN(8) > 0; i++ {
		b = append(b, fmt.Sprintf("turn %d says %d.", i, r.IntN(2))...) // 14 bytes: boundaries everywhere
	}
	return b
}

func TestPredictiveAgainstAList(t *testing.T) {
	for _, maxBlocks := range []int{1 << 20, 40} {
		t.Run(fmt.Sprint("at most ", maxBlocks), func(t *testing.T) { againstAList(t, maxBlocks) })
	}
}

func againstAList(t *testing.T, maxBlocks int) {
	const size, workers = 8, 3
	r := rand.New(rand.NewPCG(3, 5))
	m := &memory{ttl: time.Minute, size: size, alive: map[string]int{}}
	x := newPredictive(m.ttl, maxBlocks)
	now, full := noon, 0
	for range 4000 {
		now = now.Add(time.Duration(r.IntN(4)) * time.Duration(r.IntN(4)) * time.Second)
		var s scratch
		prompt := variant(r)
		s.read(prompt, size, Config{MaxBlocks: maxBlocks})
		w := r.IntN(workers)
		held := s.heldBy(workers)
		x.Overlap(now, &s.prompt, held)
		for i, got := range held {
			want := m.overlap(now, prompt, fmt.Sprint(i))
			if maxBlocks > 1000 && int(got) != want || int(got) > want {
				t.Fatalf("worker %d: %d blocks held, the list says %d", i, got, want)
			} else if want > 0 && int(got) == want {
				full++
			}
		}
		if r.IntN(50) == 0 {
			m.lives++
			m.alive[fmt.Sprint(w)] = m.lives
			x.Cleared(w)
		} else {
			m.sent = append(m.sent, sentPrompt{prompt, fmt.Sprint(w), m.alive[fmt.Sprint(w)], now})
			x.Sent(now, s.prompt.Hashes, w, x.ttl, false)
		}
		x.check(t)
	}
	if full < 500 {
		t.Errorf("only %d overlaps as long as they should be", full)
	}
	x.expire(x.since(now.Add(m.ttl)))
	x.check(t)
	if x.blocks != 0 || x.oldest != nil {
		t.Errorf("%d blocks remembered after the time to live", x.blocks)
	}
}
