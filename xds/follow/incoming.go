package follow

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers what codec stands before
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// incoming is a DeltaDiscoveryResponse as far as it is needed. Bodies share the memory of the message that brought them: a policy
// of a million keys is not copied once more on its way.
type incoming struct {
	revision, typeURL, nonce string
	resources                []arrived
	removed                  []string
}

// arrived is one resource in it.
type arrived struct {
	name, version, typeURL string
	body                   []byte
}

// codec reads an incoming from the wire, and is protobuf to all others.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*incoming); ok {
		return in.read(data.Materialize())
	}
	return c.CodecV2.Unmarshal(data, v)
}

var errWire = errors.New("the hub sent what is no response")

// read takes a message apart: see package delta for the fields.
func (in *incoming) read(data []byte) error {
	*in = incoming{}
	return fields(data, func(number protowire.Number, value []byte) error {
		switch number {
		case 1:
			return text(&in.revision, value)
		case 2:
			in.resources = append(in.resources, arrived{})
			return in.resources[len(in.resources)-1].read(value)
		case 4:
			return text(&in.typeURL, value)
		case 5:
			return text(&in.nonce, value)
		case 6:
			in.removed = append(in.removed, "")
			return text(&in.removed[len(in.removed)-1], value)
		}
		return nil
	})
}

func (a *arrived) read(data []byte) error {
	return fields(data, func(number protowire.Number, value []byte) error {
		switch number {
		case 1:
			return text(&a.version, value)
		case 2:
			return fields(value, func(number protowire.Number, value []byte) error {
				switch number {
				case 1:
					return text(&a.typeURL, value)
				case 2:
					a.body = value
				}
				return nil
			})
		case 3:
			return text(&a.name, value)
		}
		return nil
	})
}

// fields calls each for every field of bytes; others are passed over.
func fields(data []byte, each func(protowire.Number, []byte) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("%w: %w", errWire, protowire.ParseError(n))
		}
		data = data[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
				return fmt.Errorf("%w: %w", errWire, protowire.ParseError(n))
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return fmt.Errorf("%w: %w", errWire, protowire.ParseError(n))
		}
		data = data[n:]
		if err := each(number, value); err != nil {
			return err
		}
	}
	return nil
}

func text(into *string, value []byte) error {
	if !utf8.Valid(value) {
		return fmt.Errorf("%w: a text is not UTF-8", errWire)
	}
	*into = string(value)
	return nil
}
