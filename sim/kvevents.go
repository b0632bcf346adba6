package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/vmihailenco/msgpack/v5"
)

// keptBatches are what a replay can give, as engines keep by default.
const keptBatches = 10_000

// kvEvents publishes what the block cache stores and evicts, over ZeroMQ in vLLM's form: each event a map, each batch with a
// sequence, the last ones again for who asks. A token id is the token's four bytes, little-endian. The model is not told: a
// client of a simulator that serves several must keep them apart by itself.
type kvEvents struct {
	pub, router zmq4.Socket
	rank        int
	log         *slog.Logger

	mu   sync.Mutex
	next uint64
	kept []kvBatch
}

type kvBatch struct {
	sequence uint64
	payload  []byte
}

type kvStored struct {
	Type      string   `msgpack:"type"`
	Hashes    []uint64 `msgpack:"block_hashes"`
	Parent    *uint64  `msgpack:"parent_block_hash"`
	Tokens    []uint32 `msgpack:"token_ids"`
	BlockSize int      `msgpack:"block_size"`
	LoRA      *string  `msgpack:"lora_name"`
	Medium    string   `msgpack:"medium"`
	Extra     [][]any  `msgpack:"extra_keys"`
	Group     int      `msgpack:"group_idx"`
	Kind      string   `msgpack:"kv_cache_spec_kind"`
}

type kvRemoved struct {
	Type   string   `msgpack:"type"`
	Hashes []uint64 `msgpack:"block_hashes"`
	Medium string   `msgpack:"medium"`
	Group  int      `msgpack:"group_idx"`
}

// newKVEvents binds both sockets. They close when ctx ends.
func newKVEvents(ctx context.Context, events, replay string, rank int, log *slog.Logger) (*kvEvents, error) {
	quiet := zmq4.WithLogger(slog.NewLogLogger(log.Handler(), slog.LevelDebug))
	k := &kvEvents{pub: zmq4.NewPub(ctx, quiet), router: zmq4.NewRouter(ctx, quiet), rank: rank, log: log}
	for _, s := range []struct {
		socket   zmq4.Socket
		endpoint string
	}{{k.pub, events}, {k.router, replay}} {
		if s.endpoint == "" {
			continue
		}
		if path, is := strings.CutPrefix(s.endpoint, "ipc://"); is {
			_ = os.Remove(path) // of one that was killed
		}
		if err := s.socket.Listen(s.endpoint); err != nil {
			return nil, fmt.Errorf("KV events: %w", err)
		}
	}
	if replay != "" {
		go k.answer(ctx)
	}
	context.AfterFunc(ctx, func() {
		_ = k.pub.Close()
		_ = k.router.Close()
	})
	return k, nil
}

// storedEvent tells of the blocks from first to before end.
func storedEvent(s sequence, first, end int) kvStored {
	e := kvStored{Type: "BlockStored", Hashes: s.chain[first:end], BlockSize: BlockTokens, Medium: "GPU", Kind: "full_attention",
		Extra: make([][]any, end-first)}
	if first > 0 {
		e.Parent = &s.chain[first-1]
	} else if s.salt != "" {
		e.Extra[0] = []any{s.salt}
	}
	for at := first * blockBytes; at < end*blockBytes; at += TokenBytes {
		e.Tokens = append(e.Tokens, binary.LittleEndian.Uint32(s.bytes[at:]))
	}
	return e
}

// storedEvents tells of the fresh blocks, those that follow each other in one event.
func storedEvents(s sequence, fresh []bool) (events []any) {
	for i := 0; i < len(fresh); i++ {
		first := i
		for i < len(fresh) && fresh[i] {
			i++
		}
		if i > first {
			events = append(events, storedEvent(s, first, i))
		}
	}
	return events
}

func removedEvent(hash uint64) kvRemoved {
	return kvRemoved{Type: "BlockRemoved", Hashes: []uint64{hash}, Medium: "GPU"}
}

// publish sends a batch to all who subscribed, and keeps it.
func (k *kvEvents) publish(events []any) {
	var payload bytes.Buffer
	enc := msgpack.NewEncoder(&payload)
	enc.UseCompactInts(true)
	if err := enc.Encode([]any{float64(time.Now().UnixMicro()) / 1e6, events, k.rank}); err != nil {
		k.log.Error("KV events cannot be encoded", "error", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	b := kvBatch{k.next, payload.Bytes()}
	k.next++
	if k.kept = append(k.kept, b); len(k.kept) > keptBatches {
		k.kept = k.kept[1:]
	}
	_ = k.pub.SendMulti(zmq4.NewMsgFrom(nil, binary.BigEndian.AppendUint64(nil, b.sequence), b.payload))
}

// answer gives the past to who asks.
func (k *kvEvents) answer(ctx context.Context) {
	for ctx.Err() == nil {
		m, err := k.router.Recv()
		if err != nil || len(m.Frames) != 3 || len(m.Frames[2]) != 8 {
			continue
		}
		from := binary.BigEndian.Uint64(m.Frames[2])
		k.mu.Lock()
		kept := k.kept[max(0, len(k.kept)-int(k.next-min(from, k.next))):]
		k.mu.Unlock()
		for _, b := range append(kept[:len(kept):len(kept)], kvBatch{sequence: ^uint64(0)}) {
			_ = k.router.SendMulti(zmq4.NewMsgFrom(m.Frames[0], nil, nil, binary.BigEndian.AppendUint64(nil, b.sequence), b.payload))
		}
	}
}
