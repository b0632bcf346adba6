package kv

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

const (
	// sealAt is when changes become a message of their own though nobody waits for them, in bytes.
	sealAt = 64 << 10
	// ringLeast is how much of the past is kept at least for pickers that come back, in bytes of messages; with many blocks, as
	// much as a snapshot takes.
	ringLeast = 4 << 20
	// blockBytes is about what a block takes in a snapshot.
	blockBytes = 40
)

// announcer holds the table and tells followers of it. What the table changes is gathered, and made a message when a
// follower is there to take it: the slower the followers, the fewer and larger the messages.
type announcer struct {
	note  func(skipped, int)
	model *Model

	mu      sync.Mutex
	table   *table
	epoch   string
	profile message
	version uint64 // of the profile
	facts   facts
	// adapters of the engine.
	adapters adapters

	open     changes
	sequence uint64 // of the last message in ring
	ring     []message
	ringSize int
	ringMost int           // bytes; more with many blocks
	changed  chan struct{} // closed when there is more; nil: nobody waits

	snapshot *snapshot // the last one, as long as a follower could go on from it
	made     uint64    // snapshots

	making sync.Mutex // one snapshot is made at a time; taken before mu
}

// facts are what a profile says beside the model.
type facts struct {
	reason     string // why nothing exact is announced
	expected   bool   // though it should be
	blockSize  uint32
	tellsRoots bool
}

func newAnnouncer(blockSize uint32, note func(skipped, int)) *announcer {
	a := &announcer{note: note, ringMost: ringLeast, model: &Model{&workerv1.Profile{}, rawTokens{}}, facts: facts{blockSize: blockSize}}
	a.reset(0, 0)
	return a
}

func newEpoch() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// reset begins a new epoch with an empty table.
func (a *announcer) reset(seed uint64, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.table = newTable(seed, a.model.vocabulary, most, &a.open, a.note)
	a.newEpoch()
}

// newEpoch voids all that was told. The table must be empty.
func (a *announcer) newEpoch() {
	a.epoch, a.sequence, a.ring, a.ringSize, a.open.wire, a.snapshot = newEpoch(), 0, nil, 0, nil, nil
	a.describe()
}

// describe makes the profile anew.
func (a *announcer) describe() {
	p := proto.CloneOf(a.model.profile)
	p.Mode, p.Reason, p.BlockSize, p.TellsRoots = workerv1.Profile_MODE_INDEXED, a.facts.reason, a.facts.blockSize, a.facts.tellsRoots
	p.Adapters = a.adapters.all()
	switch {
	case p.Reason == "":
	case a.facts.expected:
		p.Mode = workerv1.Profile_MODE_DEGRADED
	default:
		p.Mode = workerv1.Profile_MODE_PREDICTIVE
	}
	a.profile = profileResponse(a.epoch, p)
	a.version++
	a.wake()
}

// setReason sets why nothing exact is announced, and whether it should be; empty: it is.
func (a *announcer) setReason(reason string, expected bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.facts.reason != reason || a.facts.expected != expected {
		a.facts.reason, a.facts.expected = reason, expected
		a.describe()
	}
}

// apply takes a batch of a rank.
func (a *announcer) apply(rank uint32, events []Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range events {
		a.learn(&events[i])
		a.table.apply(rank, &events[i])
		if len(a.open.wire) >= sealAt {
			a.seal()
		}
	}
	a.wake()
}

// learn takes from an event what holds for the engine. The size of its blocks is the largest seen: some engines also store
// parts of blocks. Where nothing is held, another size means another configuration.
func (a *announcer) learn(e *Event) {
	if e.Kind != Stored || e.BlockSize == 0 || !indexed(e.Attention) {
		return
	}
	if e.LoRA != nil && a.adapters.see(e.LoRA) {
		a.describe()
	}
	f := a.facts
	f.tellsRoots = f.tellsRoots || e.HasExtra
	size := uint32(e.BlockSize)
	empty := a.table.used == 0
	if empty || size > f.blockSize {
		f.blockSize = size
	}
	if f == a.facts {
		return
	}
	resized := a.facts.blockSize != f.blockSize
	a.facts = f
	if empty && resized && a.sequence > 0 {
		a.newEpoch()
	} else {
		a.describe()
	}
}

// clear forgets a rank.
func (a *announcer) clear(rank uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.table.clear(rank)
	a.wake()
}

func (a *announcer) wake() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// seal makes a message of what has changed.
func (a *announcer) seal() {
	if len(a.open.wire) == 0 {
		return
	}
	a.sequence++
	m := response(a.epoch, a.sequence, responseChanges, a.open.wire)
	a.open.wire = a.open.wire[:0]
	a.ring = append(a.ring, m)
	a.ringSize += len(m)
	for a.ringSize > max(a.ringMost, a.table.used*blockBytes) && len(a.ring) > 1 {
		a.ringSize -= len(a.ring[0])
		a.ring[0] = nil
		a.ring = a.ring[1:]
	}
	if !a.fresh() {
		a.snapshot = nil
	}
}

// fresh says whether a follower that takes the last snapshot could go on from it, with as much of the ring to spare.
func (a *announcer) fresh() bool {
	return a.snapshot != nil && a.snapshot.epoch == a.epoch && 2*(a.sequence-a.snapshot.sequence) <= uint64(len(a.ring))
}

// counts for metrics.
type counts struct {
	held      [tiers]int
	snapshots uint64
}

func (a *announcer) counts() counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return counts{a.table.held, a.made}
}

// place is where a follower is. The zero place: it has nothing.
type place struct {
	epoch    string
	sequence uint64
	version  uint64 // of the profile that it was told
}

// next gives what a follower at p is told next, waiting for it if need be, and moves p behind it.
func (a *announcer) next(ctx context.Context, p *place) ([]message, error) {
	for {
		some, wait := a.ready(p)
		switch {
		case len(some) > 0:
			return some, nil
		case wait == nil:
			return a.fromSnapshot(p), nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ready gives what is there, or a channel to wait on. Neither: a snapshot is due.
func (a *announcer) ready(p *place) ([]message, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.version != a.version {
		p.version = a.version
		return []message{a.profile}, nil
	}
	if p.epoch != a.epoch || p.sequence > a.sequence || p.sequence+uint64(len(a.ring)) < a.sequence {
		return nil, nil
	}
	if p.sequence == a.sequence {
		a.seal()
	}
	if behind := int(a.sequence - p.sequence); behind > 0 {
		p.sequence = a.sequence
		return append([]message(nil), a.ring[len(a.ring)-behind:]...), nil
	}
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return nil, a.changed
}
