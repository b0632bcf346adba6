package push

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers what codec stands before
	"google.golang.org/grpc/mem"

	"github.com/spokegate/spokegate/xds/delta"
)

// message is a page as one stream sends it: the bytes that all share, and a nonce.
type message struct {
	page  *delta.Page
	nonce string
}

// codec sends messages as the bytes that they are, and all others as protobuf.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(message); ok {
		return m.page.Message(m.nonce), nil
	}
	return c.CodecV2.Marshal(v)
}
