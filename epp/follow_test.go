package epp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/zeebo/xxh3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/router"
)

// shim announces what the test says: it stands for a worker, for no real one makes these mistakes.
type shim struct {
	workerv1.UnimplementedBlocksServer
	said chan *workerv1.FollowResponse
	came chan struct{} // a picker asks for all
}

func (s *shim) Follow(_ *workerv1.FollowRequest, stream workerv1.Blocks_FollowServer) error {
	select {
	case s.came <- struct{}{}:
	case <-stream.Context().Done():
		return nil
	}
	for {
		select {
		case m := <-s.said:
			if m == nil {
				return nil
			}
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// following is a picker that follows shims, one a worker.
type following struct {
	*testing.T
	*Picker
	fleet *fleet.Fleet
	shims []*shim

	mu     sync.Mutex
	seed   uint64
	reseed chan struct{}
}

func follow(t *testing.T, addrs ...string) *following {
	f := &following{T: t, seed: 7, reseed: make(chan struct{}), fleet: fleet.New()}
	listeners := map[string]*bufconn.Listener{}
	for i, addr := range addrs {
		blocks := fmt.Sprintf("10.1.0.%d:1", i+1)
		if _, err := f.fleet.Join(fleet.Worker{Name: fmt.Sprintf("w%d", i), Endpoint: "large", Addr: addr, Epoch: "1", State: fleet.Ready, BlocksAddr: blocks}); err != nil {
			t.Fatal(err)
		}
		s, lis, g := &shim{said: make(chan *workerv1.FollowResponse), came: make(chan struct{})}, bufconn.Listen(1<<20), grpc.NewServer()
		workerv1.RegisterBlocksServer(g, s)
		f.shims, listeners[blocks] = append(f.shims, s), lis
		var serving sync.WaitGroup
		serving.Go(func() { _ = g.Serve(lis) })
		t.Cleanup(func() { g.Stop(); serving.Wait() })
	}
	acknowledged(f.fleet, "large")
	f.Picker = New(Config{Fleet: f.fleet, Policy: naming(t, "large"), Registerer: prometheus.NewRegistry(), Blocks: &Blocks{
		Log: slog.New(slog.DiscardHandler),
		Seed: func() (uint64, <-chan struct{}) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.seed, f.reseed
		},
		Dial: func(w fleet.Worker) (*grpc.ClientConn, error) {
			return grpc.NewClient("passthrough:///b", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listeners[w.BlocksAddr].Dial() }))
		},
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Picker.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return f
}

func (f *following) tell(shim int, all ...*workerv1.FollowResponse) {
	f.Helper()
	for _, m := range all {
		select {
		case f.shims[shim].said <- m:
		case <-time.After(patience):
			f.Fatal("nobody follows")
		}
	}
}

func (f *following) asked(shim int) {
	f.Helper()
	select {
	case <-f.shims[shim].came:
	case <-time.After(patience):
		f.Fatal("nobody asks for all of it")
	}
}

// until waits for a state of the indexes.
func (f *following) until(want string) {
	f.Helper()
	var got string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var all []string
		for _, i := range f.Indexes() {
			all = append(all, i.Addr+" "+i.String())
		}
		if got = strings.Join(all, "; "); got == want {
			return
		}
	}
	f.Fatalf("%q, want %q", got, want)
}

// held waits until a prompt is announced by so many blocks where it is sent.
func (f *following) held(blocks int, addr string) {
	f.Helper()
	req, body := chat(f.T, "hello")
	var c router.Choice
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var err error
		if c, err = f.Pick(f.T.Context(), time.Now(), "large", router.Ask{}, req, body); err != nil {
			f.Fatal(err)
		}
		c.Booking.Release()
		if c.Held.Blocks == blocks && (addr == "" || c.Addrs[0] == addr) {
			return
		}
	}
	f.Fatalf("%+v, want %d blocks at %s", c.Held, blocks, addr)
}

// announced waits until the only worker's snapshot is taken in, with so many blocks.
func (f *following) announced(blocks int) {
	f.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, held := f.router("large").Size(); held == blocks && len(f.checks.list()) == 1 {
			return
		}
	}
	f.Fatalf("%d blocks are not there", blocks)
}

const template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"

func profile(mode workerv1.Profile_Mode, template string) *workerv1.FollowResponse {
	return &workerv1.FollowResponse{Epoch: "1", Message: &workerv1.FollowResponse_Profile{
		Profile: &workerv1.Profile{Mode: mode, ChatTemplate: template, Reason: "no events"}}}
}

// pieces are the blocks of what chat renders to, "<user>hello", with keys whose low halves count from 1.
func pieces(seed uint64) (all []*workerv1.Block) {
	for i, s := range []string{"<user>", "hel", "lo"} {
		b := &workerv1.Block{Key: 1<<32 | uint64(i+1), Length: uint32(len(s)), Hash: xxh3.HashStringSeed(s, seed), Tier: workerv1.Tier_TIER_DEVICE}
		if i > 0 {
			b.Parent = all[i-1].Key
		}
		all = append(all, b)
	}
	return all
}

func snapshot(first, last bool, blocks ...*workerv1.Block) *workerv1.FollowResponse {
	return &workerv1.FollowResponse{Epoch: "1", Sequence: 4, Message: &workerv1.FollowResponse_Snapshot{
		Snapshot: &workerv1.Snapshot{First: first, Last: last, Blocks: blocks}}}
}

func changes(sequence uint64, all ...*workerv1.Change) *workerv1.FollowResponse {
	return &workerv1.FollowResponse{Epoch: "1", Sequence: sequence, Message: &workerv1.FollowResponse_Changes{Changes: &workerv1.Changes{Changes: all}}}
}

func stored(b *workerv1.Block) *workerv1.Change {
	return &workerv1.Change{Change: &workerv1.Change_Stored{Stored: b}}
}

func removed(b *workerv1.Block) *workerv1.Change {
	return &workerv1.Change{Change: &workerv1.Change_Removed{Removed: &workerv1.Removed{Key: b.Key, Tier: b.Tier}}}
}

func TestWhatWorkersAnnounceDecides(t *testing.T) {
	const a, b = "10.0.0.1:1", "10.0.0.2:1"
	f := follow(t, a, b)
	f.asked(0)
	f.asked(1)
	p := pieces(7)
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, false, p[0]), snapshot(false, true, p[1]))
	f.held(2, a)
	f.until(a + " indexed")
	f.tell(0, changes(5, stored(p[2]), removed(p[2])), changes(6, stored(p[2])))
	f.held(3, a)
	f.tell(1, profile(workerv1.Profile_MODE_PREDICTIVE, ""))
	f.until(a + " indexed; " + b + " predictive (no events)")
	f.tell(1, profile(workerv1.Profile_MODE_INDEXED, "other"))
	f.until(a + " indexed; " + b + " degraded (profile differs: the tokenizer or chat template of more of the endpoint's workers is another)")
	f.tell(0, changes(7, &workerv1.Change{Change: &workerv1.Change_Cleared{Cleared: &workerv1.Cleared{}}}))
	f.held(0, "")
	f.tell(0, profile(workerv1.Profile_MODE_PREDICTIVE, ""))
	f.until(a + " predictive (no events); " + b + " degraded (profile differs: the tokenizer or chat template of more of the endpoint's workers is another)")
}

// TestAGapIsAskedAgain: nothing is believed behind a change that is missing, a parent that is unknown, or another rank.
func TestAGapIsAskedAgain(t *testing.T) {
	const a = "10.0.0.1:1"
	f := follow(t, a)
	p := pieces(7)
	f.asked(0)
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true, p[0]))
	f.held(1, a)
	f.tell(0, changes(6, stored(p[1])))
	f.until(a + " degraded (cannot be followed: the announcement has a gap)")
	f.asked(0)
	f.held(0, "")
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true, p[1]))
	f.until(a + " degraded (cannot be followed: the announcement has a gap: 1 of 1 blocks have no place)")
	f.asked(0)
	f.tell(0, changes(5)) // before any snapshot
	f.until(a + " degraded (cannot be followed: the announcement has a gap)")
	f.asked(0)
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true, &workerv1.Block{Key: 1, Rank: 1}, &workerv1.Block{Key: 2, Rank: 2}))
	f.until(a + " degraded (cannot be followed: it has more data-parallel ranks than it says (-ranks))")
	f.asked(0)
	f.tell(0, nil) // it ends the stream
	f.until(a + " degraded (cannot be followed: EOF)")
	f.asked(0)
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true, p...))
	f.held(3, a)
	f.until(a + " indexed")
}

func TestAnotherSeedBeginsAnew(t *testing.T) {
	const a = "10.0.0.1:1"
	f := follow(t, a)
	f.asked(0)
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true, pieces(7)...))
	f.held(3, a)
	f.mu.Lock()
	old := f.reseed
	f.seed, f.reseed = 8, make(chan struct{})
	close(old)
	f.mu.Unlock()
	f.asked(0)
	f.held(0, "")
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true, pieces(8)...))
	f.held(3, a)
}

// TestAWorkerThatIsBackAtOnce: what its last follower says at the end must not undo what the next one has learned.
func TestAWorkerThatIsBackAtOnce(t *testing.T) {
	dials, let := make(chan struct{}, 2), make(chan struct{})
	p := New(Config{Fleet: fleet.New(), Policy: naming(t, "large"), Registerer: prometheus.NewRegistry(), Blocks: &Blocks{
		Log: slog.New(slog.DiscardHandler),
		Dial: func(fleet.Worker) (*grpc.ClientConn, error) {
			dials <- struct{}{}
			<-let
			return nil, errors.New("nobody is there")
		},
	}})
	w := fleet.Worker{Name: "w", Endpoint: "large", Addr: "10.0.0.1:1", BlocksAddr: "10.1.0.1:1"}
	var fs followers
	defer fs.stop()
	fs.set(t.Context(), p, []fleet.Worker{w})
	<-dials
	fs.set(t.Context(), p, nil)
	fs.set(t.Context(), p, nil)
	fs.set(t.Context(), p, []fleet.Worker{w})
	select {
	case <-dials:
		t.Error("it is followed anew before the last follower is done")
	case <-time.After(50 * time.Millisecond):
	}
	close(let)
	if !t.Failed() {
		<-dials
	}
}

// TestAWorkerThatCannotBeDialled: why it cannot be followed is told for as long as it is there.
func TestAWorkerThatCannotBeDialled(t *testing.T) {
	f := &following{T: t}
	f.Picker = New(Config{Fleet: fleet.New(), Policy: naming(t, "large"), Registerer: prometheus.NewRegistry(), Blocks: &Blocks{
		Log:  slog.New(slog.DiscardHandler),
		Dial: func(fleet.Worker) (*grpc.ClientConn, error) { return nil, errors.New("nobody is there") },
	}})
	var fs followers
	defer fs.stop()
	fs.set(t.Context(), f.Picker, []fleet.Worker{{Name: "w", Endpoint: "large", Addr: "10.0.0.1:1", BlocksAddr: "10.1.0.1:1"}})
	f.until("10.0.0.1:1 degraded (cannot be followed: nobody is there)")
	time.Sleep(10 * time.Millisecond)
	f.until("10.0.0.1:1 degraded (cannot be followed: nobody is there)")
	fs.set(t.Context(), f.Picker, nil)
	f.until("")
}
