package xds

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
)

// Options are what an agent needs beside its work. The zero value is good.
type Options struct {
	Log        *slog.Logger          // default: slog.Default()
	Registerer prometheus.Registerer // nil: metrics are kept and shown nowhere
	Now        func() time.Time      // default: time.Now
	// Patience is how long Start waits for a source's first offer when there is a last good revision to serve.
	// Default: 2 s.
	Patience time.Duration
}

// Agent keeps one spoke's policy: it answers a source's offers and holds the revision in force.
type Agent struct {
	dir     string
	keeper  *policy.Keeper
	current *policy.Current
	source  Source
	Options
	metrics metrics

	// Touched by Start, and after it by the source's goroutine.
	last   uint64 // the highest number given to a revision, also to one that was lost
	unkept bool   // what is in force is not on disk

	every time.Duration // between two looks at the spoke's own revocations

	mu       sync.Mutex       // guards what follows, and that what is in force fits it
	compiled *policy.Snapshot // the revision in force, as it came
	revoked  []policy.Revocation
	status   Status
}

// Status is what people and the readiness page want to know.
type Status struct {
	Revision uint64 // in force; 0: none
	Digest   string // of its content, in hex
	Since    time.Time
	From     string
	// FromDisk: what is in force is the last good revision from disk, and no source has offered it since the start.
	FromDisk bool
	// LastNack is why the newest candidate was refused; "" if it was not.
	LastNack   string
	LastNackAt time.Time
	// Revoked is how many keys this spoke has revoked by itself, over every revision.
	Revoked int
	// RevokedErr is why a change to those could not be taken up, so that the ones before it stay revoked; "" if it could.
	RevokedErr string
}

// NewAgent makes an agent that keeps its last good revision in dir and puts revisions in force by current.
func NewAgent(dir string, current *policy.Current, source Source, o Options) *Agent {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Patience == 0 {
		o.Patience = 2 * time.Second
	}
	return &Agent{dir: dir, keeper: policy.NewKeeper(dir), current: current, source: source, Options: o, metrics: newMetrics(o.Registerer), every: lookEvery}
}

// Start puts the last good revision in force, then lets the source make one offer. It returns nil as soon as there is a
// policy in force and that offer is answered; without a last good revision it waits for the offer as long as ctx lets it.
// An error says that there is no policy, and why, or that it is not known which keys this spoke has revoked. Nothing runs
// after Start: call Run.
func (a *Agent) Start(ctx context.Context) error {
	list, err := policy.LoadRevoked(a.dir)
	if err != nil {
		return err
	}
	a.revoke(list)
	disk := a.restore()
	first, cancel := context.WithCancel(ctx)
	defer cancel()
	if disk == nil {
		var stop context.CancelFunc
		first, stop = context.WithTimeout(first, a.Patience)
		defer stop()
	}
	err = a.source.Run(first, a.held(), func(c Candidate) {
		a.offer(c)
		cancel()
	})
	if a.current.Load() != nil {
		return nil // an error of the source comes again in Run
	}
	return a.nothing(ctx, err, disk)
}

// nothing is the error of a start without any policy. What is on disk is part of it only if there is something.
func (a *Agent) nothing(ctx context.Context, source, disk error) error {
	why := cmp.Or(source, context.Cause(ctx), errors.New("the source has offered nothing"))
	if refused := a.Status().LastNack; refused != "" {
		why = errors.New(refused)
	}
	if errors.Is(disk, fs.ErrNotExist) {
		return fmt.Errorf("no policy to serve: %w", why)
	}
	return fmt.Errorf("no policy to serve: %w\nand the last good one is no help: %w", why, disk)
}

// Run answers the source's offers, and follows what the spoke revokes by itself, until ctx is done.
func (a *Agent) Run(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return a.source.Run(ctx, a.held(), a.offer) })
	work.Go(func() error { a.followRevoked(ctx); return nil })
	return work.Wait()
}

// Status is the state now. It may be asked at any time, from anywhere.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// restore puts the last good revision in force.
func (a *Agent) restore() error {
	cut, err := a.keeper.Load()
	if damaged := (*policy.Damaged)(nil); errors.As(err, &damaged) {
		a.last = damaged.Newest
		a.Log.Warn("last good policy", "err", err)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.Log.Warn("last good policy", "err", err)
	}
	if cut == nil {
		return err
	}
	a.last = max(a.last, cut.Revision().GetNumber())
	snapshot, err := policy.CompileKept(cut, a.Now())
	if err != nil {
		a.Log.Warn("last good policy is not valid", "dir", a.dir, "err", err)
		return err
	}
	a.serve(snapshot, Status{From: "disk " + a.dir, FromDisk: true})
	return nil
}

// offer answers one candidate.
func (a *Agent) offer(c Candidate) {
	again, err := a.take(c)
	now := a.Now()
	if err != nil {
		a.metrics.nacks.Inc()
		a.mu.Lock()
		a.status.LastNack, a.status.LastNackAt = err.Error(), now
		revision := a.status.Revision
		a.mu.Unlock()
		what := "policy refused, the one before it goes on"
		if again {
			what = "policy is in force and not on disk: until it is, a restart goes back to the one before"
		}
		a.Log.Warn(what, "from", c.From, "revision", revision, "reason", err)
		a.source.Nack(err.Error(), again)
		return
	}
	a.metrics.lastAck.Set(float64(now.UnixMilli()) / 1000)
	a.mu.Lock()
	a.status.LastNack, a.status.LastNackAt = "", time.Time{}
	a.status.From, a.status.FromDisk = c.From, false
	revision := a.status.Revision
	a.mu.Unlock()
	a.source.Ack(revision)
}

// take puts a candidate in force: staged, compiled, kept, served, in this order, so that a crash at any point leaves a
// revision that was checked. An error refuses it and changes nothing. But again: the candidate is not at fault, and is in force
// though the disk has not taken it, lest a key that is revoked goes on working because a disk is full.
func (a *Agent) take(c Candidate) (again bool, err error) {
	switch {
	case c.Err != nil:
		return false, c.Err
	case c.Cut == nil:
		return false, errors.New("the source offered nothing")
	case c.Digest != nil && !bytes.Equal(c.Digest, c.Cut.Digest()):
		return false, errors.New("the digest does not fit the content: something is missing, or was changed on the way")
	}
	cut, err := a.stage(c.Cut)
	if cut == nil && err == nil && a.unkept {
		return a.keep(a.held())
	}
	if cut == nil || err != nil {
		return false, err
	}
	snapshot, err := policy.CompileCut(a.inForce(), cut, a.Now())
	if err != nil {
		return false, err
	}
	again, err = a.keep(cut)
	a.serve(snapshot, Status{From: c.From})
	a.Log.Info("policy in force", "revision", snapshot.Revision(), "digest", snapshot.Digest(), "from", c.From, "keys", snapshot.Keys())
	return again, err
}

// keep puts a cut on disk. again: that is to be tried once more.
func (a *Agent) keep(cut *policy.Cut) (again bool, err error) {
	err = a.keeper.Save(cut)
	a.unkept = err != nil
	return a.unkept, err
}

// stage gives a candidate its revision. nil without an error: what it says is in force already.
func (a *Agent) stage(c *policy.Cut) (*policy.Cut, error) {
	inForce, number := a.inForce(), c.Revision().GetNumber()
	same, held := false, uint64(0)
	if inForce != nil {
		same, held = c.Same(inForce.Cut()), inForce.Revision()
	}
	switch {
	case same && (number == 0 || number == held):
		return nil, nil
	case number == 0:
		number = a.last + 1
	case number <= held:
		return nil, fmt.Errorf("revision %d is not newer than revision %d, which is in force", number, held)
	}
	revision := &policyv1.Revision{Number: number, Message: c.Revision().GetMessage(), MadeAt: c.Revision().GetMadeAt()}
	if revision.MadeAt == nil {
		revision.MadeAt = timestamppb.New(a.Now())
	}
	return c.Next(revision, nil, nil), nil
}

// inForce is the revision in force as it came; nil: none.
func (a *Agent) inForce() *policy.Snapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.compiled
}

// held is the cut in force; nil: none.
func (a *Agent) held() *policy.Cut {
	if s := a.inForce(); s != nil {
		return s.Cut()
	}
	return nil
}

// serve puts a revision in force, under what the spoke has revoked by itself.
func (a *Agent) serve(s *policy.Snapshot, status Status) {
	a.last = max(a.last, s.Revision())
	a.metrics.revision.Set(float64(s.Revision()))
	status.Revision, status.Digest, status.Since = s.Revision(), s.Digest(), s.Since()
	a.mu.Lock()
	defer a.mu.Unlock()
	status.Revoked, status.RevokedErr = a.status.Revoked, a.status.RevokedErr
	a.compiled, a.status = s, status
	a.current.Store(s.Revoke(a.revoked))
}
