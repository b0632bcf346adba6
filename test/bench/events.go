package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/vmihailenco/msgpack/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/worker/kv"
)

const (
	eventBatches  = 4000
	batchBlocks   = 32
	eventsToken   = "bench"
	eventsPatient = time.Minute
)

// events measures KV blocks from an engine's ZeroMQ publisher through the shim's announcer to a picker, all in this process,
// beside a library that only decodes the same payloads.
func events(ctx context.Context, o options) ([]figure, error) {
	payloads := make([][]byte, eventBatches+1)
	for i := range payloads {
		var err error
		if payloads[i], err = eventPayload(i); err != nil {
			return nil, err
		}
	}
	var ours, against []float64
	for range o.rounds {
		rate, err := followEvents(ctx, payloads)
		if err != nil {
			return nil, err
		}
		ours = append(ours, rate)
		if rate, err = decodeEvents(payloads[1:]); err != nil {
			return nil, err
		}
		against = append(against, rate)
	}
	return []figure{compared("worker.events", "blocks/s", "msgpack decoding alone; ours from publisher to picker, in one process", ours, against)}, nil
}

type storedEvent struct {
	Type   string   `msgpack:"type"`
	Hashes []uint64 `msgpack:"block_hashes"`
	Parent *uint64  `msgpack:"parent_block_hash"`
	Tokens []uint32 `msgpack:"token_ids"`
	Size   int      `msgpack:"block_size"`
	Medium string   `msgpack:"medium"`
	Extra  []any    `msgpack:"extra_keys"`
}

// eventPayload is the i-th batch: a chain of blocks of 16 tokens.
func eventPayload(i int) ([]byte, error) {
	e := storedEvent{Type: "BlockStored", Size: 16, Medium: "GPU", Extra: make([]any, batchBlocks)}
	for b := range batchBlocks {
		e.Hashes = append(e.Hashes, uint64(i*batchBlocks+b+1)*0x9e3779b97f4a7c15)
		for token := range 16 {
			e.Tokens = append(e.Tokens, uint32(i*7919+b*131+token)%150_000)
		}
	}
	return msgpack.Marshal([]any{1.5, []any{e}, 0})
}

func decodeEvents(payloads [][]byte) (float64, error) {
	start := time.Now()
	for _, p := range payloads {
		var batch struct {
			_msgpack struct{} `msgpack:",as_array"`
			Time     float64
			Events   []storedEvent
			Rank     int
		}
		if err := msgpack.Unmarshal(p, &batch); err != nil {
			return 0, err
		}
	}
	return float64(len(payloads)*batchBlocks) / time.Since(start).Seconds(), nil
}

// followEvents publishes the payloads, the first one until the picker has it, and times the others.
func followEvents(ctx context.Context, payloads [][]byte) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, eventsPatient)
	defer cancel()
	dir, err := os.MkdirTemp("", "kv")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	address := "ipc://" + filepath.Join(dir, "e")
	pub := zmq4.NewPub(ctx)
	defer pub.Close()
	if err := pub.Listen(address); err != nil {
		return 0, err
	}
	stream, err := announce(ctx, address)
	if err != nil {
		return 0, err
	}
	publish := func(sequence int, payload []byte) error {
		return pub.SendMulti(zmq4.NewMsgFrom([]byte("kv"), binary.BigEndian.AppendUint64(nil, uint64(sequence)), payload))
	}
	seen := make(chan int)
	go countBlocks(stream, seen)
	last := 1000
	for blocks := 0; blocks < batchBlocks; { // going back, so that it is taken for a restart, and no gap is seen
		last--
		if err := publish(last, payloads[0]); err != nil {
			return 0, err
		}
		select {
		case blocks = <-seen:
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	start := time.Now()
	for i, p := range payloads[1:] {
		if err := publish(last+1+i, p); err != nil {
			return 0, err
		}
	}
	for blocks := 0; blocks < len(payloads)*batchBlocks; {
		select {
		case blocks = <-seen:
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d blocks have come: %w", blocks, len(payloads)*batchBlocks, ctx.Err())
		}
	}
	return float64((len(payloads)-1)*batchBlocks) / time.Since(start).Seconds(), nil
}

// announce runs the shim's part until ctx ends, and gives a picker's stream of it.
func announce(ctx context.Context, address string) (workerv1.Blocks_FollowClient, error) {
	source, err := kv.New(kv.Config{Feeds: []kv.Feed{{Events: address}}, Model: kv.SimModel(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	source.SetSeed(1)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := source.NewServer(eventsToken, nil)
	context.AfterFunc(ctx, server.Stop)
	go source.Run(ctx)
	go func() { _ = server.Serve(lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return workerv1.NewBlocksClient(conn).Follow(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+eventsToken), &workerv1.FollowRequest{})
}

// countBlocks tells how many blocks the picker holds, whenever that has changed and somebody asks.
func countBlocks(stream workerv1.Blocks_FollowClient, seen chan<- int) {
	n := 0
	for {
		r, err := stream.Recv()
		if err != nil {
			return
		}
		if s := r.GetSnapshot(); s != nil {
			if s.First {
				n = 0
			}
			n += len(s.Blocks)
		}
		for _, c := range r.GetChanges().GetChanges() {
			if c.GetStored() != nil {
				n++
			} else if c.GetCleared() != nil {
				n = 0
			}
		}
		select {
		case seen <- n:
		case <-stream.Context().Done():
			return
		}
	}
}
