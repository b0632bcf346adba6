// Package wire lets a gRPC service read the messages of its hot path from their wire bytes, without an object for each
// message in between. Everything else goes through protobuf as ever: a server takes one codec for all its services.
//
// It promises what gRPC's own codec does for every message that is not a Reader. It does not know any message.
package wire

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Reader is a message that reads itself. A handler receives it as it would a protobuf message, by RecvMsg or by the decoder
// of a method.
type Reader interface {
	// FromWire takes one message. The bytes are gRPC's, and are used again once it returns: what is kept of them needs a copy
	// or a reference (b.Ref, and Free when it is done). An error ends the call with the code Internal.
	FromWire(b mem.BufferSlice) error
}

// Option makes a server read a Reader by itself.
func Option() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)})
}

// codec is gRPC's own but for a Reader.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(Reader); ok {
		return r.FromWire(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}
