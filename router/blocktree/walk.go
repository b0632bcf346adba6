package blocktree

import (
	"cmp"
	"slices"
)

// Held is what a worker holds of a prompt: the first Blocks of it, which are its first Bytes.
type Held struct {
	Worker        int
	Blocks, Bytes int
	// In are the bytes by the best tier that they are in.
	In [tiers]int
}

// Walk is what walks need for their own time; the zero value may be used, by one walk at a time, again and again.
type Walk struct {
	tree   *Tree
	prompt []byte
	left   int      // bytes that it may still hash
	best   []uint32 // by worker: one more than its place in found
	found  []Found
	ends   [][]uint32 // by depth of nodes: where the pieces end in the prompt
	paths  [][]Found  // by depth of nodes: those that hold all up to there, and go on
}

// Found is a Held, smaller: where all workers hold the same system prompt there are as many of them as workers.
type Found struct {
	worker, Blocks uint32
	In             [tiers]uint32 // bytes
}

// Bytes of all tiers.
func (f *Found) Bytes() (n uint32) {
	for _, b := range f.In {
		n += b
	}
	return n
}

// Held is the same; of nil, nothing.
func (f *Found) Held() Held {
	if f == nil {
		return Held{}
	}
	h := Held{Worker: int(f.worker), Blocks: int(f.Blocks), Bytes: int(f.Bytes())}
	for tier, n := range f.In {
		h.In[tier] = int(n)
	}
	return h
}

// Find looks for the workers that hold at least the first block of a prompt, each with the most that it holds. What it finds
// can be asked for until the next Find or Reset.
func (w *Walk) Find(t *Tree, root uint64, prompt []byte) {
	w.Reset()
	w.tree, w.prompt, w.left = t, prompt, walkMost+2*len(prompt)
	if len(w.best) < len(t.slots) {
		w.best = make([]uint32, len(t.slots))
	}
	if from := t.roots[root]; from != 0 {
		w.children(from, 0, step{})
	}
	w.tree, w.prompt = nil, nil
}

// A walk hashes each byte of the prompt twice, and the beginning of what follows a block once for each length that blocks have there:
// a few, but for prompts and announcements that are made to be slow. It finds less of what they hold beyond walkMost bytes of those,
// a millisecond, where each length counts as lengthCost more.
const (
	walkMost   = 8 << 20
	lengthCost = 256
)

// Of is what one worker holds, by the last Find; nil: nothing. It is valid until the next.
func (w *Walk) Of(worker int) *Found {
	if worker < len(w.best) && w.best[worker] != 0 {
		return &w.found[w.best[worker]-1]
	}
	return nil
}

// Reset forgets the last Find.
func (w *Walk) Reset() {
	clear(w.best)
	w.found = w.found[:0]
}

// children follows all children of a node that fit the prompt behind at, for those that hold all up to there. More than one does
// only where two sequences of tokens are the same text.
func (w *Walk) children(n uint32, at uint32, all step) {
	rest := w.prompt[at:]
	for _, l := range w.tree.nodes[n].lengths {
		if int(l.length) > len(rest) {
			continue
		}
		if w.left -= int(l.length) + lengthCost; w.left < 0 {
			return
		}
		if child := w.tree.edges[edge{n, w.tree.hash(rest[:l.length])}]; child != 0 {
			w.node(child, at, all)
		}
	}
}

// step is a node on the way that fits as a whole, and those that hold all up to its end, as far as they were asked for.
type step struct {
	level   int      // of nodes; 0: none, nobody needs to hold anything
	above   []Found  // by worker: those that hold all before the node, at least those that hold some of what is behind it
	holders []holder // of the node
	ends    []uint32 // of its pieces
	at      uint32
}

// reach gives those that hold all of a step and some of the node behind it, by worker. So what a thousand workers hold is added up
// only for those that go on with the prompt.
func (w *Walk) reach(s *step, next []holder) []Found {
	for len(w.paths) < s.level {
		w.paths = append(w.paths, nil)
	}
	paths, above := w.paths[s.level-1][:0], s.above
	for i := range next {
		worker := next[i].worker
		if i > 0 && next[i-1].worker == worker {
			continue
		}
		p := Found{worker: worker}
		if s.level > 1 {
			at, held := slices.BinarySearchFunc(above, worker, func(f Found, worker uint32) int { return cmp.Compare(f.worker, worker) })
			if above = above[at:]; !held {
				continue
			}
			p = above[0]
		}
		from, _ := slices.BinarySearchFunc(s.holders, worker, func(h holder, worker uint32) int { return cmp.Compare(h.worker, worker) })
		if p.add(sameWorker(s.holders[from:], worker), s.ends, s.at) == len(s.ends) {
			paths = append(paths, p)
		}
	}
	w.paths[s.level-1] = paths
	return paths
}

// sameWorker gives the leading holders that are one worker's.
func sameWorker(hs []holder, worker uint32) []holder {
	n := 0
	for n < len(hs) && hs[n].worker == worker {
		n++
	}
	return hs[:n]
}

// node follows a node whose first piece fits, behind a step.
func (w *Walk) node(id uint32, at uint32, all step) {
	n := &w.tree.nodes[id]
	var above []Found
	if all.level > 0 {
		if above = w.reach(&all, n.holders); len(above) == 0 {
			return
		}
	}
	ends := w.match(n, at, all.level)
	if len(ends) > 0 {
		w.left -= int(ends[len(ends)-1] - at)
	}
	for holders, path := n.holders, above; len(holders) > 0; {
		worker := holders[0].worker
		own := sameWorker(holders, worker)
		holders = holders[len(own):]
		p := w.another() // in its place at once: a thousand copies would take as long as all else
		if all.level > 0 {
			for len(path) > 0 && path[0].worker < worker {
				path = path[1:]
			}
			if len(path) == 0 || path[0].worker != worker {
				continue
			}
			*p = path[0]
		}
		p.worker = worker
		p.add(own, ends, at)
		w.note(p)
	}
	if len(ends) == len(n.pieces) && len(n.lengths) > 0 {
		end := at
		if len(ends) > 0 {
			end = ends[len(ends)-1]
		}
		w.children(id, end, step{all.level + 1, above, n.holders, ends, at})
	}
}

// add counts the leading pieces that a worker holds of a node, in whichever tier, and says how many. The tiers are sorted,
// the best first.
func (p *Found) add(tiers []holder, ends []uint32, at uint32) int {
	if len(tiers) == 1 && tiers[0].odd == nil { // nearly always
		n := min(int(tiers[0].extent), len(ends))
		if n > 0 {
			p.Blocks += uint32(n)
			p.In[tiers[0].tier] += ends[n-1] - at
		}
		return n
	}
	for i := range tiers {
		if tiers[i].odd != nil {
			return p.addOdd(tiers, ends, at)
		}
	}
	n := 0
	for i := range tiers {
		if m := min(int(tiers[i].extent), len(ends)); m > n {
			p.Blocks += uint32(m - n)
			p.In[tiers[i].tier] += ends[m-1] - at
			n, at = m, ends[m-1]
		}
	}
	return n
}

func (p *Found) addOdd(tiers []holder, ends []uint32, at uint32) int {
	for n := range ends {
		best := slices.IndexFunc(tiers, func(t holder) bool { return t.has(uint32(n)) })
		if best < 0 {
			return n
		}
		p.Blocks++
		p.In[tiers[best].tier] += ends[n] - at
		at = ends[n]
	}
	return len(ends)
}

// another is the place behind what was found.
func (w *Walk) another() *Found {
	if n := len(w.found); n < cap(w.found) {
		p := &w.found[:n+1][n]
		*p = Found{}
		return p
	}
	w.found = slices.Grow(w.found, 1)
	return w.another()
}

// note keeps what stands behind what was found, if it is the most of its worker.
func (w *Walk) note(p *Found) {
	if p.Blocks == 0 {
		return
	}
	i := w.best[p.worker]
	if i == 0 {
		w.found = w.found[:len(w.found)+1]
		w.best[p.worker] = uint32(len(w.found))
		return
	}
	if f := &w.found[i-1]; p.Bytes() > f.Bytes() || p.Bytes() == f.Bytes() && p.Blocks > f.Blocks {
		*f = *p
	}
}
