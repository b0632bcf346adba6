package wire

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// raw keeps the bytes it was read from.
type raw struct {
	bytes []byte
	err   error
}

func (r *raw) FromWire(b mem.BufferSlice) error {
	r.bytes = b.Materialize()
	return r.err
}

func TestCodec(t *testing.T) {
	c := codec{encoding.GetCodecV2(grpcproto.Name)}
	if c.Name() != grpcproto.Name {
		t.Errorf("its name is %q", c.Name())
	}
	message := wrapperspb.String("hello")
	data, err := c.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()

	var other wrapperspb.StringValue
	if err := c.Unmarshal(data, &other); err != nil || !proto.Equal(message, &other) {
		t.Errorf("a protobuf message is %v (%v)", &other, err)
	}
	var own raw
	want, _ := proto.Marshal(message)
	if err := c.Unmarshal(data, &own); err != nil || !bytes.Equal(own.bytes, want) {
		t.Errorf("a reader got %q (%v), want %q", own.bytes, err, want)
	}
	broken := raw{err: errors.New("broken")}
	if err := c.Unmarshal(data, &broken); !errors.Is(err, broken.err) {
		t.Errorf("a reader's error is %v", err)
	}
	if err := c.Unmarshal(data, new(int)); err == nil {
		t.Error("an int was read")
	}
}
