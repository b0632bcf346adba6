package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// bare is a gRPC service with nothing in it: a stream each way, of bytes as they are. What it takes is what the wire takes.
type bare struct {
	joined chan *bareStream
	// replied hears each reply.
	replied chan struct{}
}

// bareStream is one client's.
type bareStream struct{ send chan [][]byte }

// raw goes over the wire as it is.
type raw struct{ data mem.BufferSlice }

// rawCodec passes raw messages by, and is protobuf to all others.
type rawCodec struct{ encoding.CodecV2 }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(raw); ok {
		return r.data, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*raw); ok {
		data.Ref()
		r.data = data
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

var bareDesc = grpc.ServiceDesc{ServiceName: "bench.Bare", HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: talk}}}

// talk sends what it is given, and waits for one reply to each batch.
func talk(srv any, stream grpc.ServerStream) error {
	b, s := srv.(*bare), &bareStream{make(chan [][]byte, 1)}
	select {
	case b.joined <- s:
	case <-stream.Context().Done():
		return nil
	}
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case batch := <-s.send:
			for _, data := range batch {
				if err := stream.SendMsg(raw{mem.BufferSlice{mem.SliceBuffer(data)}}); err != nil {
					return err
				}
			}
			var reply raw
			if err := stream.RecvMsg(&reply); err != nil {
				return err
			}
			reply.data.Free()
			b.replied <- struct{}{}
		}
	}
}

// talkTo replies to each batch of so many messages, until the stream ends.
func talkTo(ctx context.Context, conn *grpc.ClientConn, batch int) error {
	stream, err := conn.NewStream(ctx, &bareDesc.Streams[0], "/bench.Bare/Talk", grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")}))
	if err != nil {
		return err
	}
	for {
		for range batch {
			var m raw
			if err := stream.RecvMsg(&m); err != nil {
				return fmt.Errorf("bare: %w", err)
			}
			m.data.Free()
		}
		if err := stream.SendMsg(raw{mem.BufferSlice{mem.SliceBuffer("ok")}}); err != nil {
			return fmt.Errorf("bare: %w", err)
		}
	}
}
