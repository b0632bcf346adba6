package blocktree

import "slices"

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
	best   []uint32 // by worker: one more than its place in found
	found  []Found
	ends   []uint32  // of the pieces of the present node: where they end in the prompt
	paths  [][]Found // by depth of nodes: those that hold all up to there
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
	w.tree, w.prompt = t, prompt
	if len(w.best) < len(t.slots) {
		w.best = make([]uint32, len(t.slots))
	}
	if from := t.roots[root]; from != 0 {
		w.children(from, 0, 0, nil)
	}
	w.tree, w.prompt = nil, nil
}

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

// children follows all children of a node that fit the prompt behind at. More than one does only where two sequences of
// tokens are the same text.
func (w *Walk) children(n uint32, level int, at uint32, above []Found) {
	rest := w.prompt[at:]
	for _, l := range w.tree.nodes[n].lengths {
		if int(l.length) > len(rest) {
			continue
		}
		if child := w.tree.edges[edge{n, w.tree.hash(rest[:l.length])}]; child != 0 {
			w.node(child, level, at, above)
		}
	}
}

// node follows a node whose first piece fits. above are those that hold all before it; at level 0 nobody needs to.
func (w *Walk) node(id uint32, level int, at uint32, above []Found) {
	n := &w.tree.nodes[id]
	ends := w.match(n, at)
	for len(w.paths) <= level {
		w.paths = append(w.paths, nil)
	}
	further := len(ends) == len(n.pieces) && len(n.lengths) > 0
	next := w.paths[level][:0]
	for holders := n.holders; len(holders) > 0; {
		worker, of := holders[0].worker, 1
		for of < len(holders) && holders[of].worker == worker {
			of++
		}
		p := Found{worker: worker}
		if level > 0 {
			for len(above) > 0 && above[0].worker < worker {
				above = above[1:]
			}
			if len(above) == 0 {
				break
			}
			p = above[0]
		}
		if p.worker == worker {
			if p.add(holders[:of], ends, at) == len(n.pieces) && further {
				next = append(next, p)
			}
			w.note(&p)
		}
		holders = holders[of:]
	}
	w.paths[level] = next
	if len(next) > 0 {
		end := at
		if len(ends) > 0 {
			end = ends[len(ends)-1]
		}
		w.children(id, level+1, end, next)
	}
}

// add counts the leading pieces that a worker holds of a node, in whichever tier, and says how many. The tiers are sorted,
// the best first.
func (p *Found) add(tiers []holder, ends []uint32, at uint32) int {
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

// note keeps the most that was found for a worker.
func (w *Walk) note(p *Found) {
	if p.Blocks == 0 {
		return
	}
	i := w.best[p.worker]
	if i == 0 {
		w.found = append(w.found, *p)
		w.best[p.worker] = uint32(len(w.found))
		return
	}
	if f := &w.found[i-1]; p.Bytes() > f.Bytes() || p.Bytes() == f.Bytes() && p.Blocks > f.Blocks {
		*f = *p
	}
}
