package kv

import (
	"math"
	"slices"

	"github.com/zeebo/xxh3"
)

// hash reads a number or bytes.
func (d *decoder) hash() (Hash, error) {
	c, err := d.peek()
	if err != nil {
		return 0, err
	}
	if d.isString(c) || d.isBinary(c) {
		b, err := d.bytes()
		return Hash(xxh3.Hash(b)), err
	}
	n, _, err := d.integer()
	return Hash(n), err
}

func (d *decoder) hashList() ([]Hash, error) {
	n, err := d.array()
	if err != nil {
		return nil, err
	}
	from := len(d.hashes)
	for range n {
		h, err := d.hash()
		if err != nil {
			return nil, err
		}
		d.hashes = append(d.hashes, h)
	}
	return d.hashes[from:len(d.hashes):len(d.hashes)], nil
}

func (d *decoder) tokenList() ([]uint32, error) {
	n, err := d.array()
	if err != nil {
		return nil, err
	}
	from := len(d.tokens)
	d.tokens = slices.Grow(d.tokens, n)
	for range n {
		id, err := d.token()
		if err != nil {
			return nil, err
		}
		d.tokens = append(d.tokens, id)
	}
	return d.tokens[from:len(d.tokens):len(d.tokens)], nil
}

// token reads an id. The forms that vocabularies need come first.
func (d *decoder) token() (uint32, error) {
	b := d.data[d.at:]
	if len(b) >= 3 && b[0] == 0xcd {
		d.at += 3
		return uint32(b[1])<<8 | uint32(b[2]), nil
	}
	n, err := d.below(math.MaxUint32)
	return uint32(n), err
}

// extraList reads what keeps each block apart: nil or a list a block. Values are rewritten into one form, so that who knows
// them can make the same.
func (d *decoder) extraList() ([][]byte, error) {
	n, err := d.array()
	if err != nil {
		return nil, err
	}
	from := len(d.extra)
	for range n {
		if d.null() {
			d.extra = append(d.extra, nil)
			continue
		}
		var failed error
		keys := d.keep(func(k []byte) []byte {
			k, failed = d.canonical(k, maxDepth)
			return k
		})
		if failed != nil {
			return nil, failed
		}
		d.extra = append(d.extra, keys)
	}
	return d.extra[from:len(d.extra):len(d.extra)], nil
}

// keep gives what fill appends, in memory of the decoder's own.
func (d *decoder) keep(fill func([]byte) []byte) []byte {
	from := len(d.keys)
	d.keys = fill(d.keys)
	return d.keys[from:len(d.keys):len(d.keys)]
}
