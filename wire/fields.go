package wire

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields goes through the fields of a message, in the order of the wire, and allocates nothing:
//
//	for f := wire.Over(b); f.Next(); {
//		switch f.Number { … }
//	}
//
// Whether a message is well formed is known when Next has said false: see Err.
type Fields struct {
	Number protowire.Number
	Type   protowire.Type
	// Bytes of a field that has a length, a slice of the message: a string, bytes, or a message. Nil for any other.
	Bytes []byte
	// Varint of a field that is one. 0 for any other.
	Varint uint64
	// Fixed64 is a field of eight bytes: a fixed64, or the bits of a double. 0 for any other.
	Fixed64 uint64

	rest []byte
	err  error
}

var errNumber = errors.New("a field number out of range")

// Over begins at the first field.
func Over(message []byte) Fields { return Fields{rest: message} }

// Next goes to the next field. False: there is none, or it cannot be read.
func (f *Fields) Next() bool {
	if len(f.rest) == 0 || f.err != nil {
		return false
	}
	num, typ, n := protowire.ConsumeTag(f.rest)
	if n < 0 {
		return f.fail(protowire.ParseError(n))
	}
	if num > protowire.MaxValidNumber {
		return f.fail(errNumber)
	}
	f.Number, f.Type, f.Bytes, f.Varint, f.Fixed64 = num, typ, nil, 0, 0
	f.rest = f.rest[n:]
	switch typ {
	case protowire.BytesType:
		f.Bytes, n = protowire.ConsumeBytes(f.rest)
	case protowire.VarintType:
		f.Varint, n = protowire.ConsumeVarint(f.rest)
	case protowire.Fixed64Type:
		f.Fixed64, n = protowire.ConsumeFixed64(f.rest)
	default:
		n = protowire.ConsumeFieldValue(num, typ, f.rest)
	}
	if n < 0 {
		return f.fail(protowire.ParseError(n))
	}
	f.rest = f.rest[n:]
	return true
}

func (f *Fields) fail(err error) bool {
	f.err = err
	return false
}

// Err says why the fields ended before the message did; nil: they did not.
func (f *Fields) Err() error { return f.err }
