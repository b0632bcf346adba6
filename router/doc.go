// Package router picks the worker that serves a prompt soonest: it weighs what each worker already holds of the prompt
// against what it has to do.
//
// Cost, lowest wins:
//
//	overlap_weight × (prefill_blocks + miss_weight × missing_blocks) + decode_blocks + active_weight × requests
//
// prefill_blocks are the blocks of this prompt that the worker does not hold, and those of other requests still being
// prefilled there. decode_blocks are the blocks in use by requests there. A request counts, from the pick on, what it must
// prefill as prefill and what is held for it already as decode; at its first byte all of it is decode. missing_blocks are
// those of this prompt alone: a queue costs this request its wait and no more, but a block computed again also takes a place
// in a cache, and time from those behind it (docs/routing.md has the measurements, and what policy.Routing changes beside). Equal
// costs go to the worker with the fewest requests, then to the one picked longest ago.
//
// A worker is one data-parallel rank behind an address. Where some prefill for others, one of each kind is chosen and booked.
//
// It promises:
//   - Picking and booking are one step. A burst of equal prompts knows of itself: the prompt counts as held where the first
//     of them was sent. With a miss weight of 0, what is still being prefilled there weighs as much as prefilling it elsewhere,
//     so over idle workers the burst spreads evenly; with more it stays together until what it decodes weighs as much.
//   - A booking ends when it is released, never by a timer, and exactly once. Loads are never negative, whatever comes
//     twice, late, or for a worker that is gone, whatever a worker reports.
//   - Busy is a state of the moment. Reports of workers that are late or missing stop nothing.
//   - Bounded memory: Config.MaxBlocks for what was sent, the oldest goes first; Config.MaxHeld for what is announced, and whoever
//     announces more is told so. A worker that goes takes its entries along.
//   - No clock, no I/O, no goroutine. Prompts are hashed, and announced blocks walked, outside of the lock that a choice is made
//     under; that one is held for some 40 µs where there are a thousand workers.
//
// What a worker holds is known to the byte where it announces its blocks (Feed, package blocktree) and the prompt's text is
// known (Ask.Text). Otherwise it is guessed from what was sent where, with a time to live: the engine may have evicted it earlier,
// and a prompt that a retry brought to another worker than the one picked is still remembered at the one picked.
package router
