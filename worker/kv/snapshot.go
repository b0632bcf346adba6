package kv

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// partBlocks are the blocks in a part of a snapshot.
const partBlocks = 4096

// snapshot is what was held at one sequence, as messages.
type snapshot struct {
	epoch    string
	sequence uint64
	parts    []message
}

// fromSnapshot starts a follower anew. Followers that start at about the same time share one snapshot.
func (a *announcer) fromSnapshot(p *place) []message {
	a.making.Lock()
	defer a.making.Unlock()
	a.mu.Lock()
	a.seal()
	s := a.snapshot
	if !a.fresh() {
		s = &snapshot{epoch: a.epoch, sequence: a.sequence}
		held := copyTable(a.table)
		a.mu.Unlock()
		s.write(held)
		a.mu.Lock()
		a.snapshot = s
		a.made++
	}
	a.mu.Unlock()
	p.epoch, p.sequence = s.epoch, s.sequence
	return s.parts
}

// write makes the messages.
func (s *snapshot) write(held *table) {
	var part []byte
	n := 0
	flush := func(last bool) {
		if len(s.parts) == 0 {
			part = appendNumber(part, snapshotFirst, 1)
		}
		sequence := uint64(0)
		if last {
			part, sequence = appendNumber(part, snapshotLast, 1), s.sequence
		}
		s.parts = append(s.parts, response(s.epoch, sequence, responseSnapshot, part))
		part, n = part[:0], 0
	}
	held.all(func(b block) {
		if n == partBlocks {
			flush(false)
		}
		var body [96]byte
		part = protowire.AppendBytes(append(part, snapshotBlocks<<3|byte(protowire.BytesType)), appendBlock(body[:0], b))
		n++
	})
	flush(true)
}

// copyTable copies what a snapshot needs.
func copyTable(t *table) *table {
	c := &table{nodes: slices.Clone(t.nodes), roots: make(map[uint32]uint64, len(t.roots)), groups: make([]group, len(t.groups))}
	for at, root := range t.roots {
		c.roots[at] = root
	}
	for i, g := range t.groups {
		c.groups[i] = group{rank: g.rank}
	}
	return c
}

// all gives every block that is announced, after the one before it.
func (t *table) all(give func(block)) {
	done := make([]bool, len(t.nodes))
	var path []uint32
	for i := range t.nodes {
		at := uint32(i)
		if n := &t.nodes[at]; n.group == 0 || n.state != 0 {
			continue
		}
		for ; at != 0 && !done[at]; at = t.nodes[at].parent {
			path = append(path, at)
			done[at] = true
		}
		for ; len(path) > 0; path = path[:len(path)-1] {
			t.each(path[len(path)-1], give)
		}
	}
}

// each gives a block once a tier; without one, where it is held no more and kept for those that follow it.
func (t *table) each(at uint32, give func(block)) {
	if !t.nodes[at].held() {
		give(t.block(at, -1))
		return
	}
	for tier, copies := range t.nodes[at].copies {
		if copies > 0 {
			give(t.block(at, tier))
		}
	}
}
