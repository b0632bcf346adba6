package blocktree

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// hasher is xxh3-64 with one seed. A walk hashes thousands of blocks of some 60 bytes each, so the seed is worked into the
// secret once, and not at each call: xxh3.HashSeed takes twice as long for such a block.
type hasher struct {
	seed   uint64
	secret [16]uint64
}

// xxh3Secret is the first half of xxh3's own secret.
var xxh3Secret = [16]uint64{
	0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
	0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
	0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
	0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
}

func newHasher(seed uint64) hasher {
	h := hasher{seed: seed, secret: xxh3Secret}
	for i := range h.secret {
		if i%2 == 0 {
			h.secret[i] += seed
		} else {
			h.secret[i] -= seed
		}
	}
	return h
}

// sum is xxh3.HashSeed.
func (h *hasher) sum(b []byte) uint64 {
	if len(b) <= 16 || len(b) > 128 {
		return xxh3.HashSeed(b, h.seed)
	}
	s, end := &h.secret, b[len(b)-16:]
	acc := uint64(len(b))*0x9e3779b185ebca87 + mix(b, s[0], s[1]) + mix(end, s[2], s[3])
	if len(b) > 32 {
		acc += mix(b[16:], s[4], s[5]) + mix(b[len(b)-32:], s[6], s[7])
		if len(b) > 64 {
			acc += mix(b[32:], s[8], s[9]) + mix(b[len(b)-48:], s[10], s[11])
			if len(b) > 96 {
				acc += mix(b[48:], s[12], s[13]) + mix(b[len(b)-64:], s[14], s[15])
			}
		}
	}
	acc ^= acc >> 37
	acc *= 0x165667919e3779f9
	return acc ^ acc>>32
}

// mix folds the first 16 bytes.
func mix(b []byte, k0, k1 uint64) uint64 {
	_ = b[15]
	high, low := bits.Mul64(binary.LittleEndian.Uint64(b)^k0, binary.LittleEndian.Uint64(b[8:])^k1)
	return high ^ low
}
