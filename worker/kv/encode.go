package kv

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// Messages are written straight into their wire form, once for all pickers: a test holds them against the generated code.

// Numbers of fields in worker.proto.
const (
	responseEpoch, responseSequence, responseSnapshot, responseChanges = 1, 2, 3, 4
	changeStored, changeRemoved, changeCleared                         = 1, 2, 3
	snapshotBlocks, snapshotFirst, snapshotLast                        = 1, 2, 3
	blockKey, blockParent, blockLength, blockHash, blockTier           = 1, 2, 3, 4, 5
	blockRank, blockRoot, blockTokens                                  = 6, 7, 8
	removedKey, removedTier, clearedRank                               = 1, 2, 1
)

// changes gathers what the table tells, as the field of Changes. It is a sink.
type changes struct{ wire []byte }

func (c *changes) stored(b block) {
	var body [96]byte
	c.add(changeStored, appendBlock(body[:0], b))
}

func (c *changes) removed(key uint64, tier uint32) {
	var body [24]byte
	c.add(changeRemoved, appendNumber(appendNumber(body[:0], removedKey, key), removedTier, uint64(tier)))
}

func (c *changes) cleared(rank uint32) {
	var body [8]byte
	c.add(changeCleared, appendNumber(body[:0], clearedRank, uint64(rank)))
}

// add appends one Change with the given message in it. All are short: a length takes one byte.
func (c *changes) add(field protowire.Number, body []byte) {
	c.wire = append(c.wire, 1<<3|byte(protowire.BytesType), byte(len(body)+2), byte(field)<<3|byte(protowire.BytesType), byte(len(body)))
	c.wire = append(c.wire, body...)
}

func appendBlock(to []byte, b block) []byte {
	to = appendNumber(to, blockKey, b.key)
	to = appendNumber(to, blockParent, b.parent)
	to = appendNumber(to, blockLength, uint64(b.length))
	to = appendNumber(to, blockHash, b.hash)
	to = appendNumber(to, blockTier, uint64(b.tier))
	to = appendNumber(to, blockRank, uint64(b.rank))
	to = appendNumber(to, blockRoot, b.root)
	return appendNumber(to, blockTokens, uint64(b.tokens))
}

// appendNumber leaves out zeros, as proto3 does.
func appendNumber(to []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return to
	}
	return protowire.AppendVarint(append(to, byte(field)<<3), n)
}

// response is a FollowResponse with one message in it.
func response(epoch string, sequence uint64, field protowire.Number, body []byte) message {
	to := make([]byte, 0, len(body)+len(epoch)+32)
	to = protowire.AppendString(protowire.AppendTag(to, responseEpoch, protowire.BytesType), epoch)
	to = appendNumber(to, responseSequence, sequence)
	return protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), body)
}

// profileResponse is a FollowResponse with a profile.
func profileResponse(epoch string, p *workerv1.Profile) message {
	m, err := proto.Marshal(&workerv1.FollowResponse{Epoch: epoch, Message: &workerv1.FollowResponse_Profile{Profile: p}})
	if err != nil { // only text that is not UTF-8 can fail: a template of such bytes is none
		m, _ = proto.Marshal(&workerv1.FollowResponse{Epoch: epoch, Message: &workerv1.FollowResponse_Profile{Profile: &workerv1.Profile{
			Mode: workerv1.Profile_MODE_PREDICTIVE, Reason: "the model's profile is not UTF-8"}}})
	}
	return m
}

// message is a FollowResponse as it goes over the wire; many streams send the same.
type message []byte

// codec is gRPC's own, but sends a message as it is.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(message); ok {
		return mem.BufferSlice{mem.SliceBuffer(m)}, nil
	}
	return c.CodecV2.Marshal(v)
}
