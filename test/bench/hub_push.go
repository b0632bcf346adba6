package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // what rawCodec stands before

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
	"github.com/spokegate/spokegate/xds/push"
	"github.com/spokegate/spokegate/xds/push/pushtest"
)

const (
	hubToken   = "the bench's own, on loopback alone"
	manySpokes = 1000
	// spokesEnv turns this program into many spokes: see simulatedSpokes.
	spokesEnv = "SPOKEGATE_BENCH_SPOKES"
)

// benchHub is a hub's half of the push with cuts in memory, and a bare service beside it.
type benchHub struct {
	pushtest.Cuts
	bare      *bare
	acks      chan struct{} // one for each ACK of a whole revision
	push      *push.Server
	addr      string
	plain     string // where the bare service is
	listening []*grpc.Server
	stopped   chan error
	cancel    context.CancelFunc
}

func newBenchHub() (*benchHub, error) {
	h := &benchHub{bare: &bare{make(chan *bareStream), make(chan struct{}, manySpokes)}, acks: make(chan struct{}, 4*manySpokes), stopped: make(chan error, 1)}
	var err error
	if h.push, err = push.NewServer(push.Config{Cuts: h, Token: hubToken, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	g := grpc.NewServer(append(h.push.Options(), grpc.StreamInterceptor(h.count))...)
	h.push.Register(g)
	beside := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{encoding.GetCodecV2("proto")}))
	beside.RegisterService(&bareDesc, h.bare)
	for s, addr := range map[*grpc.Server]*string{g: &h.addr, beside: &h.plain} {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*addr = lis.Addr().String()
		go func() { _ = s.Serve(lis) }()
		h.listening = append(h.listening, s)
	}
	var ctx context.Context
	ctx, h.cancel = context.WithCancel(context.Background())
	go func() { h.stopped <- h.push.Run(ctx) }()
	return h, nil
}

func (h *benchHub) stop() {
	h.cancel()
	for _, s := range h.listening {
		s.Stop()
	}
	<-h.stopped
}

// count hears ACKs as they come from the wire.
func (h *benchHub) count(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, hearing{ss, h})
}

type hearing struct {
	grpc.ServerStream
	hub *benchHub
}

func (c hearing) RecvMsg(m any) error {
	err := c.ServerStream.RecvMsg(m)
	if r, ok := m.(*discoveryv3.DeltaDiscoveryRequest); ok && err == nil && r.GetResponseNonce() != "" && r.GetTypeUrl() == delta.TypeURL(delta.KindRevision) {
		c.hub.acks <- struct{}{}
	}
	return err
}

// await takes so many of what comes.
func await[T any](ctx context.Context, what string, from <-chan T, n int) (all []T, err error) {
	limit := time.After(3 * time.Minute)
	for range n {
		select {
		case one := <-from:
			all = append(all, one)
		case <-limit:
			return nil, fmt.Errorf("%s: %d of %d came", what, len(all), n)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return all, nil
}

// publishOwn gives each spoke a cut with an endpoint of its own, made before anything is timed. The function publishes.
func (h *benchHub) publishOwn(cut *policy.Cut) func() {
	own := map[string]*policy.Cut{}
	for i := range manySpokes {
		spoke := fmt.Sprint("spoke-", i)
		if before := h.Cut(spoke); before != nil && before != h.Cut("") {
			own[spoke] = cut.With(before, policy.KindEndpoint)
			continue
		}
		own[spoke] = cut.Next(cut.Revision(), []policy.Resource{policy.Encode(policy.KindEndpoint, spoke, &policyv1.Endpoint{Name: spoke})}, nil)
	}
	return func() { h.Publish(cut, own) }
}

// spokes starts the process of the simulated ones, and waits until the hub knows what all have.
func (h *benchHub) spokes(ctx context.Context, keys int) (streams []*bareStream, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	child := exec.CommandContext(ctx, self)
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", spokesEnv, h.addr, h.plain, manySpokes, keys))
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		return nil, nil, err
	}
	stop = func() { _ = child.Process.Kill(); _ = child.Wait() }
	if streams, err = await(ctx, "streams", h.bare.joined, manySpokes); err == nil {
		_, err = await(ctx, "first answers", h.acks, manySpokes)
	}
	return streams, stop, err
}

// hubFigures are the push to 1,000 spokes that have what they have: a key is revoked among a million, until the last has it, beside
// a bare broadcast of the same bytes to the same clients; and what the hub holds for them.
func hubFigures(ctx context.Context, o options) ([]figure, error) {
	var perSpoke []float64
	var figures []figure
	for _, keys := range []int{1000, manyKeys} {
		progress("hub: %d spokes, %d keys", manySpokes, keys)
		fs, bytes, total, err := pushTo(ctx, o, keys)
		if err != nil {
			return nil, err
		}
		figures, perSpoke = fs, append(perSpoke, bytes)
		progress("hub: %.0f KB a spoke, %.0f MB in all", bytes/1e3, total/1e6)
		if keys == manyKeys {
			figures = append(figures, alone("xds.hub_memory", "MB", "a million keys, 1,000 spokes", []float64{total / 1e6}))
		}
	}
	return append(figures, compared("xds.hub_bytes_per_spoke", "B", "a policy of 1,000 keys", perSpoke[1:], perSpoke[:1])), nil
}

// pushTo measures one size of policy.
func pushTo(ctx context.Context, o options, keys int) (figures []figure, perSpoke, total float64, err error) {
	h, err := newBenchHub()
	if err != nil {
		return nil, 0, 0, err
	}
	defer h.stop()
	cut := policyOf(keys)
	h.publishOwn(cut)()
	before := held()
	streams, stop, err := h.spokes(ctx, keys)
	if err != nil {
		return nil, 0, 0, err
	}
	defer stop()
	total = held()
	var ours, against []float64
	for round := range o.rounds + 1 {
		hash := keyHash(round)
		next, err := revokeOne(cut, int(hash[0])<<4|int(hash[1])>>4) // a shard that has a key
		if err != nil {
			return nil, 0, 0, err
		}
		took, err := h.revoke(ctx, next)
		if err != nil {
			return nil, 0, 0, err
		}
		least, err := h.broadcast(ctx, streams, sameBytes(cut, next))
		if err != nil {
			return nil, 0, 0, err
		}
		if cut = next; round > 0 { // the first warms both up
			ours, against = append(ours, took), append(against, least)
		}
	}
	return []figure{compared("xds.revoke", "ms", "a bare gRPC broadcast of the same bytes to the same clients", ours, against)}, (total - before) / manySpokes, total, nil
}

// revoke publishes a cut, and gives the milliseconds until the last spoke's ACK.
func (h *benchHub) revoke(ctx context.Context, next *policy.Cut) (float64, error) {
	publish := h.publishOwn(next)
	start := time.Now()
	publish()
	_, err := await(ctx, "ACKs", h.acks, manySpokes)
	return time.Since(start).Seconds() * 1e3, err
}

// broadcast sends messages to all bare streams, and gives the milliseconds until the last reply.
func (h *benchHub) broadcast(ctx context.Context, streams []*bareStream, messages [][]byte) (float64, error) {
	start := time.Now()
	for _, s := range streams {
		s.send <- messages
	}
	_, err := await(ctx, "replies", h.bare.replied, len(streams))
	return time.Since(start).Seconds() * 1e3, err
}

// sameBytes are the messages that the push sends for a change.
func sameBytes(from, to *policy.Cut) [][]byte {
	changed, removed := from.DiffKind(policy.KindKeyShard, to)
	pages, err := delta.Pages(policy.KindKeyShard, to.Revision().GetNumber(), changed, removed)
	end, worse := delta.Closing(to)
	if err = errors.Join(err, worse); err != nil {
		panic(err)
	}
	var out [][]byte
	for _, p := range append(pages, end) {
		out = append(out, p.Message("1").Materialize())
	}
	return out
}

// held is what this process holds, in bytes: the heap after a collection, and stacks.
func held() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
