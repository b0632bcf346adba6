package kv

import (
	"bytes"
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// What keeps prompts apart, other than their bytes, is written in one form: strings and bytes as 's', length, bytes; whole
// numbers as 'i' and 8 bytes; nil as '0'; a list inside of a list as 'a', count, values. An adapter's name is 'l', length,
// bytes; where an engine tells only its number, 'n' and 8 bytes. Lengths and counts are 4 bytes, all little-endian.

func appendKey(to []byte, tag byte, value []byte) []byte {
	to = binary.LittleEndian.AppendUint32(append(to, tag), uint32(len(value)))
	return append(to, value...)
}

// canonical appends the values of a list.
func (d *decoder) canonical(to []byte, depth int) ([]byte, error) {
	n, err := d.array()
	for ; n > 0 && err == nil; n-- {
		to, err = d.canonicalValue(to, depth)
	}
	return to, err
}

func (d *decoder) canonicalValue(to []byte, depth int) ([]byte, error) {
	c, err := d.peek()
	switch {
	case err != nil:
		return to, err
	case depth == 0:
		return to, errDeep
	case d.null():
		return append(to, '0'), nil
	case d.isString(c) || d.isBinary(c):
		b, err := d.bytes()
		return appendKey(to, 's', b), err
	case d.isArray(c):
		at := d.at
		n, err := d.array()
		if err != nil {
			return to, err
		}
		d.at = at
		return d.canonical(binary.LittleEndian.AppendUint32(append(to, 'a'), uint32(n)), depth-1)
	}
	n, _, err := d.integer()
	return binary.LittleEndian.AppendUint64(append(to, 'i'), n), err
}

// withoutLoRA takes the adapter's name from the front of a block's keys: it stands in each block of such a prompt, beside
// being told by itself.
func withoutLoRA(extra, lora []byte) []byte {
	if len(lora) > 0 && lora[0] == 'l' && len(extra) >= len(lora) && extra[0] == 's' && bytes.Equal(extra[1:len(lora)], lora[1:]) {
		return extra[len(lora):]
	}
	return extra
}

// rootOf names what a prompt must share to share a first block, 0: nothing but the model. blocktree.Root makes the same of a
// request.
func rootOf(seed uint64, lora, extra []byte) uint64 {
	if len(lora) == 0 && len(extra) == 0 {
		return 0
	}
	h := xxh3.HashSeed(append(append(make([]byte, 0, 128), lora...), extra...), seed)
	return max(h, 1)
}
