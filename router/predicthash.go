package router

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// Prompt is a prompt as the predictive index reads it.
type Prompt struct {
	// Hashes of its whole blocks, in order, each of the block alone.
	Hashes []uint64

	at    *node // the last that is found whole; the prompt's first depth blocks end with it
	depth int
}

// read hashes a prompt. root keeps apart prompts that may not share blocks though their bytes are equal.
func (p *Prompt) read(prompt []byte, root uint64, size int, cfg *Config) {
	n := min(len(prompt)/size, cfg.MaxBlocks/2)
	if cap(p.Hashes) < n {
		p.Hashes = make([]uint64, n)
	}
	p.Hashes, p.at = p.Hashes[:n], nil
	if size == len(lanes{})*8 {
		lanesOf(cfg.Seed).hash(p.Hashes, prompt)
	} else {
		for i := range p.Hashes {
			p.Hashes[i] = xxh3.HashSeed(prompt[i*size:][:size], cfg.Seed)
		}
	}
	if n > 0 {
		p.Hashes[0] ^= root
	}
}

// lanes are the secret for blocks of 64 bytes, which are hashed as xxh3 does, but for its last steps, of no use to what is only
// compared, and for its seed, which is worked in here once: so it takes a third of the time.
type lanes [8]uint64

func lanesOf(seed uint64) (l lanes) {
	var b [8]byte
	for i := range l {
		binary.LittleEndian.PutUint64(b[:], uint64(i))
		l[i] = xxh3.HashSeed(b[:], seed)
	}
	return l
}

// hash fills in the hashes of blocks.
func (l lanes) hash(to []uint64, prompt []byte) {
	for i := range to {
		b := (*[64]byte)(prompt)
		to[i] = mix(b[:16], l[0], l[1]) + mix(b[16:32], l[2], l[3]) + mix(b[32:48], l[4], l[5]) + mix(b[48:], l[6], l[7])
		prompt = prompt[64:]
	}
}

func mix(b []byte, k0, k1 uint64) uint64 {
	high, low := bits.Mul64(binary.LittleEndian.Uint64(b)^k0, binary.LittleEndian.Uint64(b[8:])^k1)
	return high ^ low
}
