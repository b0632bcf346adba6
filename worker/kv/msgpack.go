package kv

import (
	"encoding/binary"
	"errors"
	"math"
)

// Why a payload cannot be read.
var (
	errTruncated = errors.New("the payload ends too early")
	errType      = errors.New("a value is of an unexpected type")
	errDeep      = errors.New("the payload is nested too deep")
)

// maxDepth of what is skipped.
const maxDepth = 32

// reader reads MessagePack where it lies. After an error it stays at the value that it could not read.
type reader struct {
	data []byte
	at   int
}

func (r *reader) left() int { return len(r.data) - r.at }

// take gives the next n bytes, which remain the payload's.
func (r *reader) take(n int) ([]byte, error) {
	if n > r.left() {
		return nil, errTruncated
	}
	b := r.data[r.at : r.at+n]
	r.at += n
	return b, nil
}

// size reads a big-endian length of n bytes.
func (r *reader) size(n int) (uint64, error) {
	b, err := r.take(n)
	if err != nil {
		return 0, err
	}
	switch n {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), nil
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), nil
	default:
		return binary.BigEndian.Uint64(b), nil
	}
}

func (r *reader) peek() (byte, error) {
	if r.left() == 0 {
		return 0, errTruncated
	}
	return r.data[r.at], nil
}

// null takes a nil, if one is next.
func (r *reader) null() bool {
	if r.left() > 0 && r.data[r.at] == 0xc0 {
		r.at++
		return true
	}
	return false
}

// count reads the head of an array (fixed 0x90) or a map (0x80). Each element takes a byte at least, so that no count is
// believed beyond what is there.
func (r *reader) count(fixed, long byte) (int, error) {
	c, err := r.peek()
	if err != nil {
		return 0, err
	}
	r.at++
	n := uint64(c & 0x0f)
	switch {
	case c&0xf0 == fixed:
	case c == long:
		n, err = r.size(2)
	case c == long+1:
		n, err = r.size(4)
	default:
		r.at--
		return 0, errType
	}
	if err == nil && n > uint64(r.left()) {
		err = errTruncated
	}
	return int(n), err
}

func (r *reader) array() (int, error)    { return r.count(0x90, 0xdc) }
func (r *reader) mapSize() (int, error)  { return r.count(0x80, 0xde) }
func (r *reader) isArray(c byte) bool    { return c&0xf0 == 0x90 || c == 0xdc || c == 0xdd }
func (r *reader) isMap(c byte) bool      { return c&0xf0 == 0x80 || c == 0xde || c == 0xdf }
func (r *reader) isString(c byte) bool   { return c&0xe0 == 0xa0 || c >= 0xd9 && c <= 0xdb }
func (r *reader) isBinary(c byte) bool   { return c >= 0xc4 && c <= 0xc6 }
func (r *reader) isNumber(c byte) bool   { return c <= 0x7f || c >= 0xe0 || c >= 0xca && c <= 0xd3 }
func (r *reader) isExtended(c byte) bool { return c >= 0xc7 && c <= 0xc9 || c >= 0xd4 && c <= 0xd8 }

// bytes reads a string or binary.
func (r *reader) bytes() ([]byte, error) {
	c, err := r.peek()
	if err != nil {
		return nil, err
	}
	r.at++
	var n uint64
	switch {
	case c&0xe0 == 0xa0:
		n = uint64(c & 0x1f)
	case c == 0xd9 || c == 0xc4:
		n, err = r.size(1)
	case c == 0xda || c == 0xc5:
		n, err = r.size(2)
	case c == 0xdb || c == 0xc6:
		n, err = r.size(4)
	default:
		r.at--
		return nil, errType
	}
	if err != nil {
		return nil, err
	}
	return r.take(int(n))
}

// integer reads a whole number; negative ones come as their two's complement, with negative set.
func (r *reader) integer() (n uint64, negative bool, err error) {
	c, err := r.peek()
	if err != nil {
		return 0, false, err
	}
	r.at++
	switch {
	case c <= 0x7f:
		return uint64(c), false, nil
	case c >= 0xe0:
		return uint64(int64(int8(c))), true, nil
	case c >= 0xcc && c <= 0xcf:
		n, err = r.size(1 << (c - 0xcc))
		return n, false, err
	case c >= 0xd0 && c <= 0xd3:
		bytes := 1 << (c - 0xd0)
		n, err = r.size(bytes)
		signed := int64(n<<(64-8*bytes)) >> (64 - 8*bytes)
		return uint64(signed), signed < 0, err
	}
	r.at--
	return 0, false, errType
}

// below reads a whole number of at most most.
func (r *reader) below(most uint64) (uint64, error) {
	n, negative, err := r.integer()
	if err == nil && (negative || n > most) {
		err = errType
	}
	return n, err
}

// number reads a whole or a floating number.
func (r *reader) number() (float64, error) {
	c, err := r.peek()
	if err != nil {
		return 0, err
	}
	switch c {
	case 0xca:
		r.at++
		n, err := r.size(4)
		return float64(math.Float32frombits(uint32(n))), err
	case 0xcb:
		r.at++
		n, err := r.size(8)
		return math.Float64frombits(n), err
	}
	n, negative, err := r.integer()
	if negative {
		return float64(int64(n)), err
	}
	return float64(n), err
}

// skip passes one value, whatever it is.
func (r *reader) skip() error { return r.skipTo(maxDepth) }

func (r *reader) skipTo(depth int) error {
	c, err := r.peek()
	if err != nil {
		return err
	}
	switch {
	case depth == 0:
		return errDeep
	case c == 0xc0 || c == 0xc2 || c == 0xc3:
		r.at++
		return nil
	case r.isNumber(c):
		_, err := r.number()
		return err
	case r.isString(c) || r.isBinary(c):
		_, err := r.bytes()
		return err
	case r.isArray(c):
		n, err := r.array()
		for ; n > 0 && err == nil; n-- {
			err = r.skipTo(depth - 1)
		}
		return err
	case r.isMap(c):
		n, err := r.mapSize()
		for n *= 2; n > 0 && err == nil; n-- {
			err = r.skipTo(depth - 1)
		}
		return err
	case r.isExtended(c):
		return r.skipExtended(c)
	}
	return errType
}

func (r *reader) skipExtended(c byte) error {
	r.at++
	n, err := uint64(1)<<(c-0xd4), error(nil)
	if c <= 0xc9 {
		n, err = r.size(1 << (c - 0xc7))
	}
	if err != nil {
		return err
	}
	_, err = r.take(int(n) + 1) // and its type
	return err
}
