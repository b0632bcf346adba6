package kv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, // the simulator's ZeroMQ leaves these behind
		goleak.IgnoreAnyFunction("github.com/go-zeromq/zmq4.(*pubMWriter).run"),
		goleak.IgnoreAnyFunction("github.com/go-zeromq/zmq4.(*socket).accept"))
}

const token = "join-token"

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
				return p.profile.GetMode() == workerv1.Profile_MODE_DEGRADED && strings.Contains(p.profile.Reason, "do not come")
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
		return p.profile.Mode == workerv1.Profile_MODE_DEGRADED && strings.Contains(p.profile.Reason, "cannot be read")
	})
	e.publish(false, storedEvent(2, 0, 2, 16))
	f.blocks("what comes then", chainOf(16, 2))
}

func TestAnEventThatCannotBeReadIsSaid(t *testing.T) {
	e := startEngine(t, &fakeEngine{folder: shortDir(t)})
	s := newSource(t, e, nil)
	f := follow(t, serve(t, s))
	e.subscribed()
	e.publish(false, storedEvent(1, 0, 1, 16))
	f.blocks("one", chainOf(16, 1))
	odd := storedEvent(2, 0, 2, 16)
	odd["block_size"] = 15
	e.publish(false, odd)
	f.blocks("nothing, for what changed is not known")
	f.see("why", func(p *picker) bool {
		return p.profile.Mode == workerv1.Profile_MODE_DEGRADED && strings.Contains(p.profile.Reason, "do not fit each other")
	})
	e.publish(false, fields{"type": "BlockBlessed"}, storedEvent(3, 0, 3, 16)) // of a kind that may come up
	f.blocks("what comes then", chainOf(16, 3))
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
