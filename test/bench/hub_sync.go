package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds"
	"github.com/spokegate/spokegate/xds/delta"
	"github.com/spokegate/spokegate/xds/follow"
)

// initialSync is a policy of a million keys on its way to a spoke that has nothing: until it is whole and its digest fits, beside
// the same bytes over a plain gRPC stream; and until it is compiled, on disk and in force.
func initialSync(ctx context.Context, o options) ([]figure, error) {
	progress("xds: a million keys to one spoke")
	h, err := newBenchHub()
	if err != nil {
		return nil, err
	}
	defer h.stop()
	cut := policyOf(manyKeys)
	h.Publish(cut, nil)
	messages := allBytes(cut)
	var ours, against, inForce []float64
	for range o.rounds {
		took, err := syncOnce(ctx, h, func(s *follow.Hub) error { return whole(ctx, s, cut) })
		if err != nil {
			return nil, err
		}
		least, err := plainOnce(ctx, h, messages)
		if err != nil {
			return nil, err
		}
		ours, against = append(ours, took), append(against, least)
	}
	for range min(o.rounds, 2) {
		took, err := syncOnce(ctx, h, func(s *follow.Hub) error { return started(ctx, s) })
		if err != nil {
			return nil, err
		}
		inForce = append(inForce, took)
	}
	return []figure{
		compared("xds.initial_sync", "ms", "the same bytes over a plain gRPC stream", ours, against),
		alone("xds.initial_in_force", "ms", "compiled, on disk and in force", inForce),
	}, nil
}

// syncOnce times a new spoke, in milliseconds.
func syncOnce(ctx context.Context, h *benchHub, done func(*follow.Hub) error) (float64, error) {
	source, err := follow.New(follow.Config{Address: h.addr, Token: hubToken, Spoke: "fresh", Door: "d", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	defer source.Close()
	start := time.Now()
	err = done(source)
	took := time.Since(start).Seconds() * 1e3
	for drained := false; !drained; {
		select {
		case <-h.acks:
		default:
			drained = true
		}
	}
	return took, err
}

// whole waits for the first offer.
func whole(ctx context.Context, s *follow.Hub, want *policy.Cut) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = errors.New("nothing is offered")
	_ = s.Run(ctx, nil, func(c xds.Candidate) {
		if err = c.Err; err == nil && (!c.Cut.Same(want) || !bytes.Equal(c.Digest, want.Digest())) {
			err = errors.New("another cut is offered")
		}
		s.Ack(1)
		cancel()
	})
	return err
}

// started waits until an agent has it in force.
func started(ctx context.Context, s *follow.Hub) error {
	dir, err := os.MkdirTemp("", "spokegate-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	current := &policy.Current{}
	if err := xds.NewAgent(dir, current, s, xds.Options{Log: slog.New(slog.DiscardHandler)}).Start(ctx); err != nil {
		return err
	}
	if n := current.Load().Keys(); n != manyKeys {
		return fmt.Errorf("%d keys are in force", n)
	}
	return nil
}

// allBytes are the messages of a first push.
func allBytes(cut *policy.Cut) (out [][]byte) {
	for _, kind := range policy.Kinds {
		changed, _ := (*policy.Cut)(nil).DiffKind(kind, cut)
		pages, err := delta.Pages(kind, 1, changed, nil)
		if err != nil {
			panic(err)
		}
		for _, p := range pages {
			out = append(out, p.Message("1").Materialize())
		}
	}
	return out
}

// plainOnce times the same bytes to a client that does nothing with them.
func plainOnce(ctx context.Context, h *benchHub, messages [][]byte) (float64, error) {
	conn, err := grpc.NewClient(h.plain, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(4<<20), grpc.WithInitialConnWindowSize(4<<20), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(delta.MostBytes)))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	go func() { _ = talkTo(ctx, conn, len(messages)) }()
	streams, err := await(ctx, "the stream", h.bare.joined, 1)
	if err != nil {
		return 0, err
	}
	streams[0].send <- messages
	_, err = await(ctx, "the reply", h.bare.replied, 1)
	return time.Since(start).Seconds() * 1e3, err
}
