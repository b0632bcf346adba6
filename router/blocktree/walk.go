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
	best   []int32 // by worker: one more than its place in found
	found  []Held
	ends   []int    // of the pieces of the present node: where they end in the prompt
	paths  [][]Held // by depth of nodes: those that hold all up to there
}

// Find gives the workers that hold at least the first block of a prompt, each with the most that it holds, in no order. The
// result is valid until the next Find or Reset.
func (w *Walk) Find(t *Tree, root uint64, prompt []byte) []Held {
	w.Reset()
	w.tree, w.prompt = t, prompt
	if len(w.best) < len(t.slots) {
		w.best = make([]int32, len(t.slots))
	}
	if from := t.roots[root]; from != 0 {
		w.children(from, 0, 0, nil)
	}
	w.tree, w.prompt = nil, nil
	return w.found
}

// Of is what one worker holds, by the last Find.
func (w *Walk) Of(worker int) Held {
	if worker >= len(w.best) || w.best[worker] == 0 {
		return Held{Worker: worker}
	}
	return w.found[w.best[worker]-1]
}

// Reset forgets the last Find.
func (w *Walk) Reset() {
	for _, h := range w.found {
		w.best[h.Worker] = 0
	}
	w.found = w.found[:0]
}

// children follows all children of a node that fit the prompt behind at. More than one does only where two sequences of
// tokens are the same text.
func (w *Walk) children(n uint32, level, at int, path []Held) {
	rest := w.prompt[at:]
	for _, l := range w.tree.nodes[n].lengths {
		if int(l.length) > len(rest) {
			continue
		}
		if child := w.tree.edges[edge{n, w.tree.hash(rest[:l.length])}]; child != 0 {
			w.node(child, level, at, path)
		}
	}
}

// node follows a node whose first piece fits. path are those that hold all before it; at level 0 nobody needs to.
func (w *Walk) node(id uint32, level, at int, path []Held) {
	n := &w.tree.nodes[id]
	ends := w.match(n.pieces, at)
	for len(w.paths) <= level {
		w.paths = append(w.paths, nil)
	}
	next := w.paths[level][:0]
	holders := n.holders
	for len(holders) > 0 {
		worker, of := holders[0].worker, 1
		for of < len(holders) && holders[of].worker == worker {
			of++
		}
		h, follows := Held{Worker: int(worker)}, true
		if level > 0 {
			for len(path) > 0 && path[0].Worker < int(worker) {
				path = path[1:]
			}
			if follows = len(path) > 0 && path[0].Worker == int(worker); follows {
				h = path[0]
			}
		}
		if follows {
			if h.add(holders[:of], ends, at) == len(n.pieces) {
				next = append(next, h)
			}
			w.note(h)
		}
		holders = holders[of:]
	}
	w.paths[level] = next
	if len(ends) == len(n.pieces) && len(next) > 0 {
		end := at
		if len(ends) > 0 {
			end = ends[len(ends)-1]
		}
		w.children(id, level+1, end, next)
	}
}

// match says where the leading pieces that fit the prompt behind at end.
func (w *Walk) match(pieces []piece, at int) []int {
	ends := w.ends[:0]
	for _, p := range pieces {
		end := at + p.length()
		if end > len(w.prompt) || w.tree.hash(w.prompt[at:end]) != p {
			break
		}
		ends = append(ends, end)
		at = end
	}
	w.ends = ends
	return ends
}

// add counts the leading pieces that a worker holds of a node, in whichever tier, and says how many. The tiers are sorted,
// the best first.
func (h *Held) add(tiers []holder, ends []int, at int) int {
	for i := range tiers {
		if tiers[i].odd != nil {
			return h.addOdd(tiers, ends, at)
		}
	}
	n := 0
	for i := range tiers {
		if m := min(int(tiers[i].extent), len(ends)); m > n {
			h.count(tiers[i].tier, m-n, ends[m-1]-at)
			n, at = m, ends[m-1]
		}
	}
	return n
}

func (h *Held) addOdd(tiers []holder, ends []int, at int) int {
	for n := range ends {
		best := slices.IndexFunc(tiers, func(t holder) bool { return t.has(uint32(n)) })
		if best < 0 {
			return n
		}
		h.count(tiers[best].tier, 1, ends[n]-at)
		at = ends[n]
	}
	return len(ends)
}

func (h *Held) count(in Tier, blocks, bytes int) {
	h.Blocks += blocks
	h.Bytes += bytes
	h.In[in] += bytes
}

// note keeps the most that was found for a worker.
func (w *Walk) note(h Held) {
	i := w.best[h.Worker]
	switch {
	case h.Blocks == 0:
	case i == 0:
		w.found = append(w.found, h)
		w.best[h.Worker] = int32(len(w.found))
	case h.Bytes > w.found[i-1].Bytes || h.Bytes == w.found[i-1].Bytes && h.Blocks > w.found[i-1].Blocks:
		w.found[i-1] = h
	}
}
