package kv

import (
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// fakeEngine publishes and replays as vLLM does, and can lose, break off and start again at will. It is a fake for faults: the
// real ones are in test/engine.
type fakeEngine struct {
	t      testing.TB
	folder string
	old    bool // replays in the framing of before vLLM 0.26
	keep   int  // batches kept for replay; 0: all

	mu      sync.Mutex
	next    uint64
	kept    []fakeBatch
	subs    []*zmtp
	conns   []net.Conn
	closers []net.Listener
	dead    bool
	all     sync.WaitGroup
}

type fakeBatch struct {
	sequence uint64
	payload  []byte
}

// shortDir is a folder whose path leaves room for a socket's.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (e *fakeEngine) events() string { return "ipc://" + filepath.Join(e.folder, "e") }
func (e *fakeEngine) replay() string { return "ipc://" + filepath.Join(e.folder, "r") }

func startEngine(t testing.TB, e *fakeEngine) *fakeEngine {
	t.Helper()
	e.t = t
	e.listen("e", e.subscriber)
	e.listen("r", e.asked)
	t.Cleanup(e.kill)
	return e
}

func (e *fakeEngine) listen(name string, serve func(net.Conn)) {
	e.t.Helper()
	path := filepath.Join(e.folder, name)
	os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		e.t.Fatal(err)
	}
	e.closers = append(e.closers, l)
	e.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			e.serve(conn, serve)
		}
	})
}

func (e *fakeEngine) serve(conn net.Conn, serve func(net.Conn)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead {
		conn.Close()
		return
	}
	e.conns = append(e.conns, conn)
	e.all.Go(func() { serve(conn) })
}

// kill ends it as a crash would.
func (e *fakeEngine) kill() {
	e.mu.Lock()
	e.dead = true
	for _, l := range e.closers {
		l.Close()
	}
	for _, c := range e.conns {
		c.Close()
	}
	e.mu.Unlock()
	e.all.Wait()
}

// cut breaks the connections, and lives on.
func (e *fakeEngine) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		c.Close()
	}
	e.conns, e.subs = nil, nil
}

func (e *fakeEngine) subscriber(conn net.Conn) {
	z, err := newZMTP(conn, "PUB", "SUB")
	if err != nil {
		return
	}
	for {
		frames, err := z.receive(time.Hour)
		if err != nil {
			return
		}
		if len(frames) == 1 && len(frames[0]) > 0 && frames[0][0] == 1 {
			e.mu.Lock()
			e.subs = append(e.subs, z)
			e.mu.Unlock()
		}
	}
}

func (e *fakeEngine) asked(conn net.Conn) {
	z, err := newZMTP(conn, "ROUTER", "DEALER")
	if err != nil {
		return
	}
	for {
		frames, err := z.receive(time.Hour)
		if err != nil {
			return
		}
		e.mu.Lock()
		start := binary.BigEndian.Uint64(frames[1])
		for _, b := range e.kept {
			if b.sequence >= start {
				e.answer(z, b)
			}
		}
		e.answer(z, fakeBatch{end, nil})
		e.mu.Unlock()
	}
}

func (e *fakeEngine) answer(z *zmtp, b fakeBatch) {
	sequence := binary.BigEndian.AppendUint64(nil, b.sequence)
	if e.old {
		_ = z.send(nil, sequence, b.payload)
	} else {
		_ = z.send(nil, []byte("topic"), sequence, b.payload)
	}
}

// publish sends a batch to who subscribed; lost: to nobody, but it is kept.
func (e *fakeEngine) publish(lost bool, events ...any) {
	e.t.Helper()
	payload, err := msgpack.Marshal([]any{float64(time.Now().UnixNano()) / 1e9, events, 0})
	if err != nil {
		e.t.Fatal(err)
	}
	e.publishRaw(lost, payload)
}

func (e *fakeEngine) publishRaw(lost bool, payload []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := fakeBatch{e.next, payload}
	e.next++
	if e.kept = append(e.kept, b); e.keep > 0 && len(e.kept) > e.keep {
		e.kept = e.kept[len(e.kept)-e.keep:]
	}
	if lost {
		return
	}
	for _, z := range e.subs {
		_ = z.send([]byte("topic"), binary.BigEndian.AppendUint64(nil, b.sequence), payload)
	}
}

// subscribed waits for a subscriber.
func (e *fakeEngine) subscribed() {
	e.t.Helper()
	until(e.t, "the engine has no subscriber", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.subs) > 0
	})
}

func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// storedEvent is BlockStored of one block of size tokens, all of them token.
func storedEvent(name, parent uint64, token uint32, size int) fields {
	tokens := make([]uint32, size)
	for i := range tokens {
		tokens[i] = token
	}
	e := fields{"type": "BlockStored", "block_hashes": []uint64{name}, "parent_block_hash": nil, "token_ids": tokens,
		"block_size": size, "lora_id": nil, "medium": "GPU", "lora_name": nil, "extra_keys": []any{nil}, "group_idx": 0}
	if parent != 0 {
		e["parent_block_hash"] = parent
	}
	return e
}

func removedEvent(name uint64) fields {
	return fields{"type": "BlockRemoved", "block_hashes": []uint64{name}, "medium": "GPU", "group_idx": 0}
}
