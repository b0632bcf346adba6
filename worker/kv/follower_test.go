package kv

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// follower is a picker that follows over gRPC, from one goroutine.
type follower struct {
	t    testing.TB
	stop func()

	mu     sync.Mutex
	picker *picker
}

// serve runs a source and its gRPC server. The address is where pickers follow.
func serve(t testing.TB, s *Source) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := s.NewServer(token, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { s.Run(ctx) })
	all.Go(func() { _ = server.Serve(lis) })
	t.Cleanup(func() {
		cancel()
		server.Stop()
		all.Wait()
	})
	return lis.Addr().String()
}

// client is a stub of the service at address, as one who knows the token.
func client(t testing.TB, address string) (workerv1.BlocksClient, context.Context) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return workerv1.NewBlocksClient(conn), metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token)
}

func follow(t testing.TB, address string) *follower {
	t.Helper()
	c, ctx := client(t, address)
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.Follow(ctx, &workerv1.FollowRequest{})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, picker: newPicker(t)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.picker.take(r)
			f.mu.Unlock()
		}
	}()
	f.stop = func() { cancel(); <-done }
	t.Cleanup(f.stop)
	return f
}

// see waits until the picker is as it should be.
func (f *follower) see(what string, is func(*picker) bool) {
	f.t.Helper()
	var last string
	defer func() {
		if f.t.Failed() {
			f.t.Log(last)
		}
	}()
	until(f.t, "the picker never sees "+what, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		last = fmt.Sprintf("%v\n%v", f.picker.paths(), f.picker.profile)
		return is(f.picker)
	})
}

// blocks waits for the given blocks, each as "NAME<PARENT..." of tokens.
func (f *follower) blocks(what string, want ...chain) {
	f.t.Helper()
	paths := map[string]int{}
	for _, c := range want {
		paths[c.path()]++
	}
	f.see(what, func(p *picker) bool { return fmt.Sprint(p.paths()) == fmt.Sprint(paths) })
}

// chain is the tokens of the blocks on the way to a block, each of them size times the token.
type chain struct {
	size   int
	tokens []uint32
}

func (c chain) path() string {
	w := &world{parents: map[Hash]Hash{}, tokens: map[Hash][]uint32{}, salts: map[Hash][]byte{}, image: map[Hash]bool{}}
	at := map[Hash]*piece{}
	for i, token := range c.tokens {
		h := Hash(i + 1)
		w.parents[h], at[h] = Hash(i), &piece{known: true, parent: Hash(i)}
		for range c.size {
			w.tokens[h] = append(w.tokens[h], token)
		}
	}
	text, _ := w.path(at, Hash(len(c.tokens)))
	return fmt.Sprintf("rank 0 %s %s", text, workerv1.Tier_TIER_DEVICE)
}

func chainOf(size int, tokens ...uint32) chain { return chain{size, tokens} }

func newSource(t testing.TB, e *fakeEngine, change func(*Config)) *Source {
	t.Helper()
	cfg := Config{Model: SimModel(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if e != nil {
		cfg.Feeds = []Feed{{Events: e.events(), Replay: e.replay()}}
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.SetSeed(testSeed)
	return s
}
