package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// With one resource a key, go-control-plane's own cache is given fewer keys and fewer spokes: with a million for a thousand it would
// need more memory than there is.
const (
	cachedKeys   = 100_000
	cachedSpokes = 10
	keyType      = "type.googleapis.com/spokegate.policy.v1.Key"
)

// cachedKeysOf are keys as resources, one each.
func cachedKeysOf(n int) map[string]types.Resource {
	out := make(map[string]types.Resource, n)
	for i := range n {
		hash := keyHash(i)
		name := fmt.Sprint("key-", i)
		out[name] = &policyv1.Key{Id: name, Team: fmt.Sprint("team-", i%1000), Sha256: hash[:]}
	}
	return out
}

// oneResourceAKey is what a hub made of go-control-plane's linear cache holds for a spoke, and how long a revoked key takes to the
// last spoke's ACK.
func oneResourceAKey(ctx context.Context, o options) ([]figure, error) {
	progress("xds: go-control-plane's linear cache, %d keys, %d spokes", cachedKeys, cachedSpokes)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	linear := cachev3.NewLinearCache(keyType, cachev3.WithInitialResources(cachedKeysOf(cachedKeys)))
	acks := make(chan struct{}, 4*cachedSpokes)
	ads := serverv3.NewServer(ctx, &cachev3.MuxCache{Caches: map[string]cachev3.Cache{"keys": linear},
		Classify: func(*cachev3.Request) string { return "keys" }, ClassifyDelta: func(*cachev3.DeltaRequest) string { return "keys" }},
		serverv3.CallbackFuncs{StreamDeltaRequestFunc: func(_ int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			if r.GetResponseNonce() != "" {
				acks <- struct{}{}
			}
			return nil
		}})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, ads)
	go func() { _ = g.Serve(lis) }()
	defer g.Stop()
	before := held()
	for i := range cachedSpokes {
		if err := cachedSpoke(ctx, lis.Addr().String(), i); err != nil {
			return nil, err
		}
		if _, err := await(ctx, "ACKs", acks, 1); err != nil {
			return nil, err
		}
	}
	perSpoke := (held() - before) / cachedSpokes
	var took []float64
	for round := range o.rounds {
		hash, name := keyHash(round), fmt.Sprint("key-", round)
		start := time.Now()
		if err := linear.UpdateResource(name, &policyv1.Key{Id: name, Team: fmt.Sprint("team-", round), Sha256: hash[:], Revoked: true}); err != nil {
			return nil, err
		}
		if _, err := await(ctx, "ACKs", acks, cachedSpokes); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start).Seconds()*1e3)
	}
	return []figure{
		alone("xds.cache_bytes_per_spoke", "B", "go-control-plane's linear cache, 100,000 keys, one resource each", []float64{perSpoke}),
		alone("xds.cache_revoke", "ms", "the same, to the last of 10 spokes", took),
	}, nil
}

// cachedSpoke follows the cache, and forgets what it gets.
func cachedSpoke(ctx context.Context, address string, i int) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return err
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: fmt.Sprint("spoke-", i)}, TypeUrl: keyType, ResourceNamesSubscribe: []string{"*"}})
	}
	if err != nil {
		return err
	}
	go func() {
		defer conn.Close()
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			if stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: keyType, ResponseNonce: m.Nonce}) != nil {
				return
			}
		}
	}()
	return nil
}
