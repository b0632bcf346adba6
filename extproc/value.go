package extproc

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spokegate/spokegate/wire"
)

// The kinds of a google.protobuf.Value, by the numbers of their fields.
const (
	valueNull   = 1
	valueNumber = 2
	valueString = 3
	valueBool   = 4
	valueStruct = 5
	valueList   = 6
)

// value is a google.protobuf.Value; kind 0: none.
type value struct {
	kind   protowire.Number
	number float64 // of valueNumber
	text   []byte  // of valueString
}

// member reads one entry of a Struct's map.
func member(b []byte) (key []byte, v value, err error) {
	key, err = mapEntry(b, v.read)
	return key, v, err
}

// mapEntry reads one entry of a map, whose value may stand before its key.
func mapEntry(b []byte, value func([]byte) error) (key []byte, err error) {
	f := wire.Over(b)
	for f.Next() && err == nil {
		switch {
		case f.Type != protowire.BytesType:
		case f.Number == entryKey:
			key = f.Bytes
		case f.Number == entryValue:
			err = value(f.Bytes)
		}
	}
	if err == nil {
		err = f.Err()
	}
	return key, err
}

// read takes the last of the kinds that are there, as protobuf does.
func (v *value) read(b []byte) error {
	f := wire.Over(b)
	for f.Next() {
		switch {
		case f.Type == protowire.VarintType && (f.Number == valueNull || f.Number == valueBool),
			f.Type == protowire.BytesType && (f.Number == valueStruct || f.Number == valueList):
			*v = value{kind: f.Number}
		case f.Type == protowire.Fixed64Type && f.Number == valueNumber:
			*v = value{kind: f.Number, number: math.Float64frombits(f.Fixed64)}
		case f.Type == protowire.BytesType && f.Number == valueString:
			*v = value{kind: f.Number, text: f.Bytes}
		}
	}
	return f.Err()
}
