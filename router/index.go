package router

import "time"

// Index knows how much of a prompt each worker holds. Workers are small numbers; a number that was cleared may be given
// to another worker. The router calls an index under its own lock, so an index needs none.
//
// What the workers announce of their engines' caches comes in by Stored, Removed and Cleared; what the router has just
// sent, and the engine will have in a moment, by Sent.
type Index interface {
	// Overlap sets held[w], which is 0 before, to the number of leading whole blocks of the prompt that worker w holds.
	Overlap(now time.Time, p *Prompt, held []int32)
	// Sent notes that the prompt goes to the worker.
	Sent(now time.Time, p *Prompt, worker int)

	// Stored notes blocks that the worker's engine has stored, parents before children.
	Stored(worker int, blocks []Block)
	// Removed notes blocks, by key, that the engine has dropped.
	Removed(worker int, keys []uint64)
	// Cleared notes that the worker holds nothing any more: it is gone, or its engine began anew.
	Cleared(worker int)
}

// Block is a KV block as a worker announces it.
type Block struct {
	Key, Parent uint64 // the engine's own names; parent 0: the block begins a prompt
	Length      uint32 // bytes of text that it stands for
	Hash        uint64 // xxh3-64 of these bytes, with the seed of the spoke
}

// Stored passes on what a worker announces. Of unknown workers nothing is kept.
func (r *Router) Stored(addr string, blocks []Block) {
	r.feed(addr, func(slot int) { r.index.Stored(slot, blocks) })
}

// Removed passes on what a worker announces.
func (r *Router) Removed(addr string, keys []uint64) {
	r.feed(addr, func(slot int) { r.index.Removed(slot, keys) })
}

// Cleared tells that the worker's engine began anew, with an empty cache. Bookings stay.
func (r *Router) Cleared(addr string) {
	r.feed(addr, func(slot int) { r.index.Cleared(slot) })
}

func (r *Router) feed(addr string, f func(slot int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.byAddr[addr]; w != nil {
		f(w.slot)
	}
}
