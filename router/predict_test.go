package router

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// memory is the dumb index: the list of all that was sent.
type memory struct {
	ttl   time.Duration
	size  int
	sent  []*sentPrompt
	alive map[string]int // life of each worker that is there
	lives int
}

type sentPrompt struct {
	prompt  []byte
	worker  string
	life    int
	until   time.Time
	pending bool
	leaf    *node
	of      uint32 // life, as the index knows it
}

// overlap compares the prompt with everything, block by block.
func (m *memory) overlap(now time.Time, prompt []byte, worker string) int {
	deepest := 0
	for _, s := range m.sent {
		if s.worker != worker || s.life != m.alive[worker] || !s.pending && !now.Before(s.until) {
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
	size, nodes := 0, 0
	kids := map[*node]int{}
	for e, n := range x.edges {
		if n.gone || n.parent != e.from || len(n.hashes) == 0 || n.hashes[0] != e.first || cap(n.hashes) > 2*len(n.hashes)+8 {
			t.Fatalf("edge %v leads to a node that is not its own: %v", e, n)
		}
		kids[n.parent]++
		size += n.size()
	}
	seen := map[*node]bool{}
	for n := x.oldest; n != nil; n = n.newer {
		if seen[n.parent] || x.edges[edge{n.parent, n.hashes[0]}] != n || n.older != nil && n.older.used > n.used || n.kids != kids[n] {
			t.Fatalf("a node out of order in the list")
		}
		seen[n] = true
		nodes++
	}
	if nodes != len(x.edges) || size != x.size || size > x.max || x.root.kids != kids[&x.root] {
		t.Fatalf("%d nodes in the list, %d in the tree; size %d, counted %d, at most %d", nodes, len(x.edges), size, x.size, x.max)
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
	for _, words := range []int{1 << 20, 400} {
		t.Run(fmt.Sprint("at most ", words, " words"), func(t *testing.T) { againstAList(t, words) })
	}
}

// againstAList sends prompts to workers that come and go; some wait there for their first byte.
func againstAList(t *testing.T, words int) {
	const size, workers = 8, 3
	r := rand.New(rand.NewPCG(3, 5))
	m := &memory{ttl: time.Minute, size: size, alive: map[string]int{}}
	x := newPredictive(m.ttl, words)
	now, full := noon, 0
	var p Prompt
	for range 5000 {
		now = now.Add(time.Duration(r.IntN(4)) * time.Duration(r.IntN(4)) * time.Second)
		prompt := variant(r)
		p.read(prompt, 0, size, &Config{MaxBlocks: words})
		held := make([]int32, workers)
		x.Overlap(now, &p, held)
		for i, got := range held {
			want := m.overlap(now, prompt, fmt.Sprint(i))
			if words > 1000 && int(got) != want || int(got) > want {
				t.Fatalf("worker %d: %d blocks held, the list says %d", i, got, want)
			} else if want > 0 && int(got) == want {
				full++
			}
		}
		m.sent = slices.DeleteFunc(m.sent, func(s *sentPrompt) bool { return !s.pending && !now.Before(s.until) })
		w := r.IntN(workers)
		switch r.IntN(50) {
		case 0:
			m.lives++
			m.alive[fmt.Sprint(w)] = m.lives
			x.Cleared(w)
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12:
			if len(m.sent) > 0 {
				m.computed(x, now, r)
			}
		default:
			s := &sentPrompt{prompt: prompt, worker: fmt.Sprint(w), life: m.alive[fmt.Sprint(w)], pending: r.IntN(4) == 0, of: x.life(w)}
			ttl := []time.Duration{m.ttl, burst}[r.IntN(2)]
			s.until = now.Add(ttl)
			s.leaf = x.Sent(now, &p, w, ttl, s.pending)
			m.sent = append(m.sent, s)
		}
		x.check(t)
	}
	if full < 500 {
		t.Errorf("only %d overlaps as long as they should be", full)
	}
	for _, s := range m.sent {
		s.end(x, now, false)
	}
	x.expire(x.since(now.Add(m.ttl)))
	x.check(t)
	if x.size != 0 || x.oldest != nil {
		t.Errorf("%d words remembered after the time to live", x.size)
	}
}

// computed ends the waiting of one of those sent last.
func (m *memory) computed(x *predictive, now time.Time, r *rand.Rand) {
	s := m.sent[max(0, len(m.sent)-1-r.IntN(20))]
	if s.pending {
		s.end(x, now, r.IntN(3) > 0)
	}
}

func (s *sentPrompt) end(x *predictive, now time.Time, computed bool) {
	if !s.pending {
		return
	}
	s.pending = false
	x.Computed(now, s.leaf, int(s.worker[0]-'0'), s.of, burst, computed)
	if until := now.Add(burst); computed && until.After(s.until) {
		s.until = until
	}
}

// TestAFloodStaysWithinBounds: prompts that nobody shares anything of take what they may and no more.
func TestAFloodStaysWithinBounds(t *testing.T) {
	const words = 1 << 14
	p := newPool(t, Config{OverlapWeight: 1, MaxBlocks: words}, a, b, c)
	for i := range 5000 {
		p.pick(text(1+i%40, fmt.Sprint(i, "-"))).Booking.Release()
		if i%100 == 0 {
			p.index.check(t)
		}
	}
	if p.index.size < words/2 {
		t.Errorf("%d words remembered, want nearly %d", p.index.size, words)
	}
	if last := p.pick(text(1+4999%40, "4999-")); last.Overlap != 1+4999%40 {
		t.Errorf("overlap %d with what was sent last", last.Overlap)
	}
	long := text(3*words, "x") // of which a part is looked at
	p.pick(long).Booking.Release()
	if c := p.pick(long); c.Overlap != words/2 {
		t.Errorf("overlap %d with a prompt of %d blocks", c.Overlap, 3*words)
	}
	p.index.check(t)
}

// TestConversationsAreFewNodes: a turn that goes on from the one before lies in one node with it.
func TestConversationsAreFewNodes(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b)
	conversation := text(500, "p")
	for n := 8 * 5; n <= len(conversation); n += 8 * 5 {
		choice := p.pick(conversation[:n])
		choice.Booking.FirstByte()
		choice.Booking.Release()
		if choice.Overlap != n/8-5 {
			t.Fatalf("overlap %d of %d", choice.Overlap, choice.Blocks)
		}
		if len(p.index.edges) > 1 {
			t.Fatalf("%d nodes", len(p.index.edges))
		}
	}
	p.pick(conversation[:8*250]+"and then", b) // a branch, elsewhere
	if p.index.check(t); len(p.index.edges) != 3 {
		t.Errorf("%d nodes, want the stem and two", len(p.index.edges))
	}
}
