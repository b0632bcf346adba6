package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/roster"
	"github.com/spokegate/spokegate/worker/kv"
)

// ownEars follow the KV events of engines that have no shim, and announce to this process's own picker what a shim would: on
// loopback, to whoever knows a word that only this process does.
type ownEars struct {
	model *kv.Model // nil: why says why
	why   string
	seed  *seed
	token string
	log   *slog.Logger

	mu   sync.Mutex
	here map[string]bool // addresses
}

func newOwnEars(modelDir string, seed *seed, log *slog.Logger) *ownEars {
	e := &ownEars{seed: seed, token: rand.Text(), log: log, here: map[string]bool{}, why: "the model's folder is not known: see -model-dir"}
	if modelDir != "" {
		var err error
		if e.model, err = kv.ReadModel(modelDir); err != nil {
			e.why = err.Error()
			log.Warn("the model cannot be read, so what workers of the file hold is guessed", "folder", modelDir, "error", err)
		}
	}
	return e
}

// open follows one engine until close.
func (e *ownEars) open(l roster.Worker) (address string, end func(), err error) {
	host, _, err := net.SplitHostPort(l.Worker.Addr)
	if err != nil {
		return "", nil, err
	}
	log := e.log.With("worker", l.Worker.Name)
	cfg := kv.Config{Model: e.model, Why: e.why, BlockSize: l.Worker.BlockSize, Log: log}
	if cfg.Feeds, err = kv.Feeds(l.Events, l.Replay, host, int(max(l.Worker.Ranks, 1))); err != nil {
		return "", nil, fmt.Errorf("kv_events: %w", err)
	}
	if e.model == nil && l.Worker.Engine == "sim" {
		cfg.Model = kv.SimModel()
	}
	source, err := kv.New(cfg)
	if err != nil {
		return "", nil, err
	}
	first, _ := e.seed.current()
	source.SetSeed(first) // before anybody follows, who would have to begin anew
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := source.NewServer(e.token, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { source.Run(ctx) })
	all.Go(func() { e.passSeed(ctx, source) })
	all.Go(func() {
		if err := server.Serve(lis); err != nil {
			log.Error("KV blocks cannot be followed", "error", err)
		}
	})
	address = lis.Addr().String()
	e.note(address, true)
	return address, func() {
		cancel()
		server.Stop()
		all.Wait()
		e.note(address, false)
	}, nil
}

func (e *ownEars) passSeed(ctx context.Context, source *kv.Source) {
	for {
		seed, changed := e.seed.current()
		source.SetSeed(seed)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (e *ownEars) note(address string, here bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if here {
		e.here[address] = true
	} else {
		delete(e.here, address)
	}
}

func (e *ownEars) has(address string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.here[address]
}

// blocks is how the picker follows these, and others as before.
func (e *ownEars) blocks(others *epp.Blocks) *epp.Blocks {
	return &epp.Blocks{Seed: e.seed.current, Log: e.log, Dial: func(w fleet.Worker) (*grpc.ClientConn, error) {
		switch {
		case e.has(w.BlocksAddr):
			return grpc.NewClient("passthrough:///"+w.BlocksAddr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
				grpc.WithPerRPCCredentials(joinToken(e.token)), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnnouncement)))
		case others != nil:
			return others.Dial(w)
		}
		return nil, fmt.Errorf("nobody announces blocks at %s", w.BlocksAddr)
	}}
}
