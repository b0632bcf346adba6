// Package blocktree knows, to the byte, which worker holds how much of a prompt. It is fed with the blocks that engines
// store and drop, each as (parent, length, hash of its bytes), and is asked with the rendered prompt: no tokenizer is needed.
//
// Blocks that follow one another lie in one node of a tree (path compression), 8 bytes each, whoever holds them; a node knows
// for each worker how many of its first blocks that worker holds. A place in the tree is found again by the worker's own key:
// half a byte where keys follow one another as the blocks do, 8 where they do not. So a million blocks that nobody shares take
// about 11 MB, at worst 18, and what a thousand workers share takes each of them less than 1 byte a block.
//
// It promises:
//   - After any order of stores and removals, a walk finds just what a list of all blocks would (see the test's oracle).
//   - A prompt is followed through all blocks that fit its bytes, also where two siblings do, for the same text can be two
//     sequences of tokens.
//   - A block counts only with all before it; one that comes back later counts again with those behind it.
//   - Memory follows what is held, bounded by keys a worker: a worker that announces more is told so and keeps what it has.
//
// It does not promise to tell apart what hashes to the same 40 bits of a seeded xxh3: a wrong match, at about one in 10¹² for
// each block compared, costs a worse choice and nothing else.
//
// No lock: walks may run side by side, but not beside a change.
package blocktree
