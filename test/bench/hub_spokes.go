package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
)

// simulatedSpokes is a process of many spokes, so that a hub's memory and theirs are told apart. Each has what the bench's hub
// has at first, says so, and acknowledges what comes; it compiles nothing. SPOKEGATE_BENCH_SPOKES is
// "ADDRESS BARE SPOKES KEYS".
func simulatedSpokes(ctx context.Context, args string) error {
	var address, plain string
	var spokes, keys int
	if _, err := fmt.Sscan(args, &address, &plain, &spokes, &keys); err != nil {
		return err
	}
	cut := policyOf(keys)
	says := map[string]map[string]string{}
	for _, kind := range policy.Kinds {
		says[kind] = map[string]string{}
		for r := range cut.Of(kind) {
			says[kind][r.Name] = r.Version
		}
	}
	work, ctx := errgroup.WithContext(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+hubToken))
	var turn sync.Mutex // they call one after the other, as a hub that returns hears from them by chance
	for i := range spokes {
		work.Go(func() error {
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(delta.MostAsked)))
			if err != nil {
				return err
			}
			defer conn.Close()
			beside, err := grpc.NewClient(plain, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return err
			}
			defer beside.Close()
			turn.Lock()
			stream, err := callHub(ctx, conn, i, says)
			turn.Unlock()
			if err != nil {
				return err
			}
			go func() { _ = talkTo(ctx, beside, 2) }()
			for {
				m, err := stream.Recv()
				if err != nil {
					return err
				}
				if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce}); err != nil {
					return err
				}
			}
		})
	}
	if err := work.Wait(); !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "spokes:", err)
	}
	return nil
}

// callHub opens a spoke's stream, and waits until the hub knows that it has what it has.
func callHub(ctx context.Context, conn *grpc.ClientConn, i int, says map[string]map[string]string) (discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, error) {
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	node := &corev3.Node{Id: delta.Node(fmt.Sprint("spoke-", i), "door")}
	for _, kind := range append(append([]string(nil), policy.Kinds...), delta.KindRevision) {
		has := says[kind]
		if kind == policy.KindEndpoint {
			has = nil // each has one of its own, which is sent to it
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: delta.TypeURL(kind), ResourceNamesSubscribe: []string{delta.All}, InitialResourceVersions: has}); err != nil {
			return nil, err
		}
		node = nil
	}
	return stream, nil
}
