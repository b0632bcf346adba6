package kv

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, // the simulator's ZeroMQ leaves these behind
		goleak.IgnoreAnyFunction("github.com/go-zeromq/zmq4.(*pubMWriter).run"),
		goleak.IgnoreAnyFunction("github.com/go-zeromq/zmq4.(*socket).accept"))
}

const token = "join-token"

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

// What was stored before the shim came is asked for; what is lost on the way too.
func TestFollowsFromTheFirstEvent(t *testing.T) {
	for _, old := range []bool{false, true} {
		e := startEngine(t, &fakeEngine{folder: shortDir(t), old: old})
		e.publish(false, storedEvent(1, 0, 7, 16), storedEvent(2, 1, 8, 16))
		s := newSource(t, e, nil)
		f := follow(t, serve(t, s))
		f.blocks("what was before", chainOf(16, 7), chainOf(16, 7, 8))
		e.subscribed()
		e.publish(false, storedEvent(3, 2, 9, 16))
		f.blocks("what came", chainOf(16, 7), chainOf(16, 7, 8), chainOf(16, 7, 8, 9))
		e.publish(true, removedEvent(3))
		e.publish(false, removedEvent(2))
		f.blocks("what was lost", chainOf(16, 7))
		f.see("the profile", func(p *picker) bool {
			return p.profile.Mode == workerv1.Profile_MODE_INDEXED && p.profile.BlockSize == 16 && p.profile.TellsRoots && p.profile.ChatTemplate == simTemplate
		})
		e.publish(true, storedEvent(4, 0, 5, 16)) // and nothing after it
		f.blocks("the last one, though nothing came after it", chainOf(16, 7), chainOf(16, 5))
	}
}

// A hole that the engine cannot fill costs what is known of the rank, and no more.
func TestAHoleThatIsGone(t *testing.T) {
	e := startEngine(t, &fakeEngine{folder: shortDir(t), keep: 2})
	s := newSource(t, e, nil)
	f := follow(t, serve(t, s))
	e.subscribed()
	e.publish(false, storedEvent(1, 0, 7, 16))
	f.blocks("the first", chainOf(16, 7))
	for i := range uint64(5) {
		e.publish(true, storedEvent(10+i, 0, uint32(10+i), 16))
	}
	e.publish(false, storedEvent(2, 1, 8, 16), storedEvent(3, 0, 9, 16)) // the first of them behind one that is forgotten
	f.blocks("what is kept", chainOf(16, 14), chainOf(16, 9))
	e.publish(false, storedEvent(1, 0, 7, 16))
	f.blocks("the tail, once its parent has come again", chainOf(16, 14), chainOf(16, 9), chainOf(16, 7), chainOf(16, 7, 8))
}

// A restart in place is seen, whether the new engine is behind the old one's sequence or has passed it meanwhile.
func TestRestartInPlace(t *testing.T) {
	for _, batches := range []int{0, 1, 3, 5} {
		dir := shortDir(t)
		e := startEngine(t, &fakeEngine{folder: dir})
		s := newSource(t, e, nil)
		f := follow(t, serve(t, s))
		e.subscribed()
		for i := range uint64(3) {
			e.publish(false, storedEvent(1+i, i, uint32(1+i), 16))
		}
		f.blocks("three", chainOf(16, 1), chainOf(16, 1, 2), chainOf(16, 1, 2, 3))
		e.kill()
		again := &fakeEngine{folder: dir, t: t}
		var want []chain
		for i := range batches {
			again.publish(true, storedEvent(uint64(100+i), 0, uint32(100+i), 32))
			want = append(want, chainOf(32, uint32(100+i)))
		}
		startEngine(t, again)
		f.blocks("the new engine's alone", want...)
		if batches > 0 {
			f.see("another block size", func(p *picker) bool { return p.profile.BlockSize == 32 })
		}
		again.subscribed()
		again.publish(false, storedEvent(1, 0, 1, 32))
		f.blocks("what comes after", append(want, chainOf(32, 1))...)
	}
}

// Behind a proxy the connection outlives the engine.
func TestSequenceGoesBack(t *testing.T) {
	e := startEngine(t, &fakeEngine{folder: shortDir(t)})
	s := newSource(t, e, func(c *Config) { c.Feeds[0].Replay = "" })
	f := follow(t, serve(t, s))
	e.subscribed()
	e.publish(false, storedEvent(1, 0, 1, 16))
	e.publish(false, storedEvent(2, 1, 2, 16))
	f.blocks("two", chainOf(16, 1), chainOf(16, 1, 2))
	e.mu.Lock()
	e.next = 0
	e.mu.Unlock()
	e.publish(false, storedEvent(3, 0, 3, 16))
	f.blocks("the new one alone", chainOf(16, 3))
}

func TestWithoutReplayALostConnectionForgets(t *testing.T) {
	e := startEngine(t, &fakeEngine{folder: shortDir(t)})
	s := newSource(t, e, func(c *Config) { c.Feeds[0].Replay = "" })
	f := follow(t, serve(t, s))
	e.subscribed()
	e.publish(false, storedEvent(1, 0, 1, 16))
	f.blocks("one", chainOf(16, 1))
	e.cut()
	f.blocks("nothing")
	e.subscribed()
	e.publish(false, storedEvent(2, 0, 2, 16))
	f.blocks("what comes then", chainOf(16, 2))
}

// Whatever breaks, in the end the picker holds what the engine holds.
func TestWhateverBreaks(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	dir := shortDir(t)
	e := startEngine(t, &fakeEngine{folder: dir})
	address := serve(t, newSource(t, e, nil))
	f := follow(t, address)
	holds := map[uint64]bool{}
	for range 400 {
		name := 1 + r.Uint64N(30)
		switch n := r.IntN(100); {
		case n == 0:
			e.kill()
			e, holds = startEngine(t, &fakeEngine{folder: dir, old: r.IntN(2) == 0}), map[uint64]bool{}
		case n < 4:
			e.cut()
		case n < 60 && !holds[name]:
			holds[name] = true
			e.publish(r.IntN(3) == 0, storedEvent(name, 0, uint32(name), 16))
		case holds[name]:
			delete(holds, name)
			e.publish(r.IntN(3) == 0, removedEvent(name))
		}
	}
	var want []chain
	for name := range holds {
		want = append(want, chainOf(16, uint32(name)))
	}
	f.blocks("all that is held", want...)
	follow(t, address).blocks("the same by another", want...)
}

// Where the endpoint has no "*" the engine connects to us; one that comes again takes the old one's place.
func TestTheEngineConnects(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := lis.Addr().String()
	lis.Close()
	e := &fakeEngine{t: t, folder: shortDir(t)}
	s := newSource(t, nil, func(c *Config) { c.Feeds = []Feed{{Events: "tcp://" + address, Listen: true}} })
	f := follow(t, serve(t, s))
	for life := range uint32(2) {
		until(t, "nobody listens", func() bool {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				e.serve(conn, e.subscriber)
			}
			return err == nil
		})
		e.subscribed()
		e.publish(false, storedEvent(1, 0, 1+life, 16))
		f.blocks("what it published", chainOf(16, 1+life))
		e.mu.Lock()
		e.subs = nil // the old connection stays open, and is forgotten
		e.next = 0
		e.mu.Unlock()
	}
	e.kill()
}

// The other side of the connection may be anything.
func TestPeersThatAreNoEngines(t *testing.T) {
	for name, hello := range map[string]string{
		"http":          "HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat("x", 100),
		"an old ZMTP":   "\x01\x00",
		"with CURVE":    greetingOf("CURVE"),
		"a PULL socket": greetingOf("NULL") + "\x04\x1b\x05READY" + string(property("Socket-Type", "PULL")) + "     ",
		"endless frame": greetingOf("NULL") + "\x06\xff\xff\xff\xff\xff\xff\xff\xff",
		"closed":        "",
	} {
		t.Run(name, func(t *testing.T) {
			e := &fakeEngine{t: t, folder: shortDir(t)}
			e.listen("e", func(conn net.Conn) {
				defer conn.Close()
				_, _ = conn.Write([]byte(hello))
			})
			t.Cleanup(e.kill)
			s := newSource(t, e, nil)
			follow(t, serve(t, s)).see("why it announces nothing", func(p *picker) bool {
				return p.profile.GetMode() == workerv1.Profile_MODE_PREDICTIVE && strings.Contains(p.profile.Reason, "do not come")
			})
		})
	}
}

func greetingOf(mechanism string) string {
	g := [64]byte{0: 0xff, 9: 0x7f, 10: 3}
	copy(g[12:], mechanism)
	return string(g[:])
}

func TestAPayloadThatCannotBeReadIsSaid(t *testing.T) {
	e := startEngine(t, &fakeEngine{folder: shortDir(t)})
	s := newSource(t, e, nil)
	f := follow(t, serve(t, s))
	e.subscribed()
	e.publish(false, storedEvent(1, 0, 1, 16))
	f.blocks("one", chainOf(16, 1))
	e.publishRaw(false, []byte("not msgpack"))
	f.blocks("nothing, for what changed is not known")
	f.see("why", func(p *picker) bool {
		return p.profile.Mode == workerv1.Profile_MODE_PREDICTIVE && strings.Contains(p.profile.Reason, "cannot be read")
	})
	e.publish(false, storedEvent(2, 0, 2, 16))
	f.blocks("what comes then", chainOf(16, 2))
}

// What makes all of before void begins a new epoch.
func TestEpochs(t *testing.T) {
	e := startEngine(t, &fakeEngine{folder: shortDir(t)})
	s := newSource(t, e, nil)
	f := follow(t, serve(t, s))
	e.publish(false, storedEvent(1, 0, 1, 16))
	f.blocks("one", chainOf(16, 1))
	epoch := func() string { f.mu.Lock(); defer f.mu.Unlock(); return f.picker.epoch }
	first := epoch()
	s.SetSeed(0)
	s.SetSeed(testSeed)
	f.blocks("the same", chainOf(16, 1))
	if epoch() != first {
		t.Error("the seed that is known began an epoch")
	}
	s.SetSeed(testSeed + 1)
	f.see("another epoch, with other hashes", func(p *picker) bool {
		return p.epoch != first && len(p.blocks) == 1 && fmt.Sprint(p.paths()) != fmt.Sprint(map[string]int{chainOf(16, 1).path(): 1})
	})
	second := epoch()
	s.SetSeed(testSeed)
	f.see("a third epoch", func(p *picker) bool {
		return p.epoch != first && p.epoch != second && p.paths()[chainOf(16, 1).path()] == 1
	})
}

func TestWhyNothingIsAnnounced(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"publishes no KV events":                    func(c *Config) {},
		"tokenizer.json: no such file":              func(c *Config) { nowhere(c); c.Model, c.Why = nil, "tokenizer.json: no such file" },
		"the engine's events are waited for at tcp": nowhere,
	} {
		s := newSource(t, nil, change)
		s.say()
		p := newPicker(t)
		p.pull(s.announcer)
		if p.profile.GetMode() != workerv1.Profile_MODE_PREDICTIVE || !strings.Contains(p.profile.GetReason(), want) {
			t.Errorf("%v, want %q", p.profile, want)
		}
		if p.said.snapshots != 1 || len(p.blocks) != 0 {
			t.Errorf("%s: %d snapshots", want, p.said.snapshots)
		}
	}
	s, err := New(Config{Feeds: []Feed{{Events: "tcp://127.0.0.1:5557"}}, Model: SimModel()})
	if err != nil {
		t.Fatal(err)
	}
	p := newPicker(t)
	p.pull(s.announcer)
	if !strings.Contains(p.profile.Reason, "no door has told the seed") {
		t.Errorf("%v", p.profile)
	}
	if _, err := New(Config{Feeds: []Feed{{Events: "5557"}}, Model: SimModel()}); err == nil {
		t.Error("an address that is none is taken")
	}
}

// Endpoints are read as engines read them.
func TestFeeds(t *testing.T) {
	for _, c := range []struct {
		events, replay, host string
		ranks                int
		want                 string
	}{
		{"tcp://*:5557", "tcp://*:5558", "", 1, "[{tcp://127.0.0.1:5557 tcp://127.0.0.1:5558 false}]"},
		{"tcp://*:5557", "", "10.0.0.7", 2, "[{tcp://10.0.0.7:5557  false} {tcp://10.0.0.7:5558  false}]"},
		{"tcp://127.0.0.1:5557", "tcp://127.0.0.1:5560", "", 2, "[{tcp://127.0.0.1:5557 tcp://127.0.0.1:5560 true} {tcp://127.0.0.1:5558 tcp://127.0.0.1:5561 true}]"},
		{"tcp://[::1]:5557", "", "", 1, "[{tcp://[::1]:5557  false}]"},
		{"ipc:///run/e", "ipc:///run/r", "", 1, "[{ipc:///run/e ipc:///run/r false}]"},
		{"ipc:///run/e", "", "", 2, ""}, {"ipc://", "", "", 1, ""}, {"tcp://*:0", "", "", 1, ""}, {"tcp://*:65535", "", "", 2, ""}, {"5557", "", "", 1, ""},
		{"tcp://*:5557", "5558", "", 1, ""}, {"tcp://*:5557", "", "", 65, ""}, {"tcp://*:5557", "", "", 0, ""}, {"tcp://:5557", "", "", 1, ""},
	} {
		got, err := Feeds(c.events, c.replay, c.host, c.ranks)
		if text := fmt.Sprint(got); err == nil && text != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%+v: %s, %v", c, text, err)
		}
	}
}

// nowhere is a feed that never connects.
func nowhere(c *Config) { c.Feeds = []Feed{{Events: "tcp://127.0.0.1:1"}} }

func TestNobodyFollowsWithoutTheToken(t *testing.T) {
	c, _ := client(t, serve(t, newSource(t, nil, nil)))
	for _, header := range [][]string{nil, {"authorization", "Bearer wrong"}, {"authorization", token},
		{"authorization", "Bearer " + token, "authorization", "Bearer " + token}} {
		stream, err := c.Follow(metadata.AppendToOutgoingContext(t.Context(), header...), &workerv1.FollowRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%q: %v", header, err)
		}
	}
}

// Ten pickers share one snapshot, and one that takes nothing holds up neither the others nor the engine.
func TestAPickerThatLags(t *testing.T) {
	s := newSource(t, nil, nowhere)
	s.announcer.ringMost = 128 << 10
	address := serve(t, s)
	c, ctx := client(t, address)
	slow, err := c.Follow(ctx, &workerv1.FollowRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Recv(); err != nil { // and then takes nothing for a while
		t.Fatal(err)
	}
	var others []*follower
	for range 9 {
		others = append(others, follow(t, address))
	}
	for _, f := range others {
		f.see("a snapshot", func(p *picker) bool { return p.said.snapshots > 0 })
	}
	if n := s.announcer.counts().snapshots; n > 3 { // of the epoch before the seed, of the one after it
		t.Errorf("%d snapshots for ten pickers", n)
	}
	for _, f := range others[1:] {
		f.stop()
	}
	name := Hash(0)
	for until := 2 << 20; until > 0; until -= blockBytes * 1000 { // more than is kept for one that lags
		events := make([]Event, 1000)
		for i := range events {
			name++
			events[i] = Event{Kind: Stored, Tier: workerv1.Tier_TIER_DEVICE, Hashes: []Hash{name}, Tokens: []uint32{uint32(name)}, BlockSize: 1}
			if name > 1000 {
				s.announcer.apply(0, []Event{{Kind: Removed, Tier: workerv1.Tier_TIER_DEVICE, Hashes: []Hash{name - 1000}}})
			}
		}
		s.announcer.apply(0, events)
	}
	others[0].see("the end", func(p *picker) bool { return len(p.blocks) == 1000 })
	p := newPicker(t)
	for deadline := time.Now().Add(time.Minute); len(p.blocks) != 1000 || p.said.snapshots < 2; {
		r, err := slow.Recv()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v after %d snapshots, %d blocks", err, p.said.snapshots, len(p.blocks))
		}
		p.take(r)
	}
}
