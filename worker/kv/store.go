package kv

import (
	"slices"

	"github.com/zeebo/xxh3"
)

// store takes the blocks of an event, each behind the one before.
func (t *table) store(g uint16, e *Event) {
	if len(e.Tokens) == 0 {
		t.storeAgain(g, e)
		return
	}
	if t.used+len(e.Hashes)+1 > t.most {
		t.note(skipFull, t.used)
		t.clear(t.groups[g].rank)
	}
	parent := uint32(0)
	if e.HasParent {
		if parent = t.groups[g].nodes[e.Parent]; parent == 0 {
			parent = t.make(g, e.Parent, 0)
			t.nodes[parent].state = adrift
		}
	}
	for i, name := range e.Hashes {
		at := t.groups[g].nodes[name]
		switch {
		case at == 0:
			at = t.make(g, name, parent)
			t.fill(at, e, i)
			t.add(at, e.Tier)
		case t.nodes[at].tokens == 0 && at != parent:
			t.arrive(at, parent, e, i)
		default:
			t.add(at, e.Tier)
		}
		parent = at
	}
}

// storeAgain takes blocks that were stored in another medium before: their tokens are not told again.
func (t *table) storeAgain(g uint16, e *Event) {
	for _, name := range e.Hashes {
		if at := t.groups[g].nodes[name]; at != 0 {
			t.add(at, e.Tier)
		} else {
			t.note(skipUnknown, 1)
		}
	}
}

// fill sets what node at stands for: block i of an event.
func (t *table) fill(at uint32, e *Event, i int) {
	n := &t.nodes[at]
	t.bytes = t.bytes[:0]
	known := true
	for _, token := range e.Tokens[i*e.BlockSize : (i+1)*e.BlockSize] {
		var ok bool
		t.bytes, ok = t.vocab.appendToken(t.bytes, token)
		known = known && ok
	}
	n.tokens, n.length = uint16(e.BlockSize), uint32(len(t.bytes))
	n.content = xxh3.HashSeed(t.bytes, t.seed)
	var extra []byte
	if len(e.Extra) > 0 {
		extra = withoutLoRA(e.Extra[i], e.LoRA)
	}
	switch {
	case n.parent == 0:
		if root := rootOf(t.seed, e.LoRA, extra); root != 0 {
			t.roots[at] = root
		}
	case len(extra) > 0: // an image, say: more than text stands there
		n.state |= hidden
	}
	if !known {
		n.state |= hidden
	}
	if n.parent != 0 {
		n.state |= t.nodes[n.parent].state
	}
	switch {
	case n.state&adrift != 0:
		t.drift(n.parent, ref{at, n.turn})
	case n.state&hidden != 0:
		t.note(skipHidden, 1)
	}
}

// drift remembers a node that follows one adrift. Those that are gone are taken out now and then.
func (t *table) drift(parent uint32, r ref) {
	list := t.below[parent]
	if len(list) > 2*int(t.nodes[parent].kids)+16 {
		list = slices.DeleteFunc(list, func(r ref) bool { return t.nodes[r.at].turn != r.turn || t.nodes[r.at].group == 0 })
	}
	t.below[parent] = append(list, r)
}

// arrive makes a node real that others follow already, and announces those.
func (t *table) arrive(at, parent uint32, e *Event, i int) {
	t.nodes[at].state, t.nodes[at].parent = 0, parent
	if parent != 0 {
		t.nodes[parent].kids++
	}
	t.fill(at, e, i)
	t.add(at, e.Tier)
	if t.nodes[at].state&adrift == 0 {
		t.land(at)
	}
}

// land takes what follows a node out of its drift.
func (t *table) land(at uint32) {
	for todo := []uint32{at}; len(todo) > 0; {
		at, todo = todo[len(todo)-1], todo[:len(todo)-1]
		for _, r := range t.below[at] {
			n := &t.nodes[r.at]
			if n.turn != r.turn || n.group == 0 || n.parent != at {
				continue
			}
			n.state = n.state&^adrift | t.nodes[at].state
			if n.state == 0 {
				t.each(r.at, func(b block) {
					t.out.stored(b)
					if b.tier > 0 {
						t.held[b.tier-1]++
					}
				})
			}
			todo = append(todo, r.at)
		}
		delete(t.below, at)
	}
}
