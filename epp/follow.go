package epp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/router"
)

// Blocks is how the picker follows what workers hold.
type Blocks struct {
	// Dial makes a connection to where a worker announces its blocks, with the spoke's credentials. It does not wait for it.
	Dial func(fleet.Worker) (*grpc.ClientConn, error)
	// Seed is that of the hashes, and a channel that is closed when it changes.
	Seed func() (uint64, <-chan struct{})
	Log  *slog.Logger
}

// How soon a worker is followed again: doubling.
const (
	followFirst = 100 * time.Millisecond
	followMost  = 5 * time.Second
)

// followers are one for each worker that announces its blocks; each ends when its worker is gone, or another is there.
type followers struct {
	all     sync.WaitGroup
	running map[string]*follower // by the worker's address
	ending  map[string]*follower // the latest that was told to end: until all that it stored is dropped, its worker may be back
}

// follower follows one worker.
type follower struct {
	p      *Picker
	worker fleet.Worker
	router *router.Router
	cancel context.CancelFunc
	after  *follower // of the same address, before this one
	ended  chan struct{}
}

// same says that the follower of one is that of the other.
func same(a, b fleet.Worker) bool {
	return a.Name == b.Name && a.Endpoint == b.Endpoint && a.BlocksAddr == b.BlocksAddr && a.Ranks == b.Ranks
}

// set follows these workers and no other.
func (fs *followers) set(ctx context.Context, p *Picker, workers []fleet.Worker) {
	if p.Blocks == nil {
		return
	}
	next, ending := map[string]*follower{}, map[string]*follower{}
	for addr, f := range fs.ending {
		if !f.over() {
			ending[addr] = f
		}
	}
	for _, w := range workers {
		r := p.router(w.Endpoint)
		if w.BlocksAddr == "" || r == nil {
			continue
		}
		before := fs.running[w.Addr]
		if before != nil && same(before.worker, w) && before.worker.BlockSize == w.BlockSize && before.router == r {
			next[w.Addr] = before
			delete(fs.running, w.Addr)
			continue
		}
		f := &follower{p: p, worker: w, router: r, after: cmp.Or(before, ending[w.Addr]), ended: make(chan struct{})}
		var own context.Context
		own, f.cancel = context.WithCancel(ctx)
		next[w.Addr] = f
		fs.all.Go(func() { f.run(own) })
	}
	for addr, f := range fs.running {
		f.cancel()
		ending[addr] = f
	}
	fs.running, fs.ending = next, ending
}

// over says that it has had its last word.
func (f *follower) over() bool {
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

func (fs *followers) stop() {
	for _, f := range fs.running {
		f.cancel()
	}
	fs.all.Wait()
}

// run follows again and again until ctx ends.
func (f *follower) run(ctx context.Context) {
	defer close(f.ended)
	if f.after != nil {
		<-f.after.ended // so that its last word comes before our first
		f.after = nil
	}
	defer f.p.texts.leave(f.worker)
	defer f.p.checks.leave(f.worker)
	conn, err := f.p.Blocks.Dial(f.worker)
	if err != nil {
		f.p.texts.say(f.worker, "cannot be followed: "+err.Error())
		<-ctx.Done() // that is told for as long as the worker is there
		return
	}
	defer conn.Close()
	wait := followFirst
	for ctx.Err() == nil {
		whole, err := f.session(ctx, workerv1.NewBlocksClient(conn))
		if whole {
			wait = followFirst
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errRanks):
			wait = followMost
		case errors.Is(err, errReseeded), errors.Is(err, errTurned):
			continue
		}
		f.p.texts.say(f.worker, "cannot be followed: "+status.Convert(err).Message())
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, followMost)
	}
}

// Why a follower begins anew at once.
var (
	errReseeded = errors.New("the spoke has another seed")
	errTurned   = errors.New("the endpoint's prompts are rendered by another profile")
)

// session is one stream. whole says that the worker has told all that it holds.
func (f *follower) session(ctx context.Context, c workerv1.BlocksClient) (whole bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	seed, reseeded := f.p.Blocks.Seed()
	turned := f.p.texts.turn(f.worker.Endpoint)
	go func() {
		select {
		case <-reseeded:
			cancel(errReseeded)
		case <-turned:
			cancel(errTurned)
		case <-ctx.Done():
		}
	}()
	stream, err := c.Follow(ctx, &workerv1.FollowRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return false, err
	}
	in := &intake{
		open: func(epoch string) feeds {
			fs := announced(f.router, f.worker, seed)
			f.p.checks.open(f.worker, epoch, fs)
			return fs
		},
		profile: func(p *workerv1.Profile) (exact bool) {
			changed, exact := f.p.texts.profile(f.worker, p)
			if changed {
				f.p.checks.anew(f.worker.Addr)
			}
			return exact
		},
		heard: func(held int) { f.p.checks.heard(f.worker.Addr, held) },
	}
	defer in.close()
	for {
		m, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errReseeded) || errors.Is(cause, errTurned) {
				err = cause
			}
			return whole, err
		}
		if err := in.take(m); err != nil {
			return whole, err
		}
		whole = whole || in.whole
	}
}
