package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/join"
	"github.com/spokegate/spokegate/identity"
)

// plainConfig forwards, and does nothing more. Buffers and breakers are those of the door's own configuration.
const plainConfig = `{
 "admin": {"address": {"socketAddress": {"address": "127.0.0.1", "portValue": %[2]d}}},
 "staticResources": {
  "listeners": [{
   "name": "in", "address": {"socketAddress": {"address": "127.0.0.1", "portValue": %[1]d}}, "perConnectionBufferLimitBytes": 1048576,
   "filterChains": [{"filters": [{"name": "hcm", "typedConfig": {
    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "statPrefix": "in",
    "routeConfig": {"virtualHosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "shim", "timeout": "0s"}}]}]},
    "httpFilters": [{"name": "envoy.filters.http.router", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]
   }}]}]
  }],
  "clusters": [{
   "name": "shim", "type": "STATIC", "connectTimeout": "1s", "perConnectionBufferLimitBytes": 1048576,
   "circuitBreakers": {"thresholds": [{"maxConnections": 100000, "maxPendingRequests": 100000, "maxRequests": 100000, "maxRetries": 100000}]},
   "loadAssignment": {"clusterName": "shim", "endpoints": [{"lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "%[3]s", "portValue": %[4]d}}}}]}]}
  }]
 }
}`

// plainEnvoy is the baseline: listener, router, the shim's address.
func plainEnvoy(listen, admin, shim string) *bootstrapv3.Bootstrap {
	port := func(s string) uint16 { return netip.MustParseAddrPort(s).Port() }
	b := &bootstrapv3.Bootstrap{}
	text := fmt.Sprintf(plainConfig, port(listen), port(admin), netip.MustParseAddrPort(shim).Addr(), port(shim))
	if err := protojson.Unmarshal([]byte(text), b); err != nil {
		panic(err) // a constant
	}
	return b
}

// signer is a second door as far as the shim knows: it welcomes the shim and makes contexts as the first one does, and no more.
type signer struct {
	fleet  *fleet.Fleet
	minter *identity.Minter
	joins  *join.Server
	server *grpc.Server
	shim   string // its address
	serial uint64
}

func newSigner(socket, tokenFile string) (*signer, error) {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, err
	}
	m := identity.NewMinter("bench")
	_ = os.Remove(socket) // of an earlier run
	lis, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	s := &signer{fleet: fleet.New(), minter: m, server: grpc.NewServer()}
	s.joins = &join.Server{Fleet: s.fleet, Token: strings.TrimSpace(string(token)), Door: m.Door(), Keys: m.Keys, Macs: true,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	workerv1.RegisterFleetServer(s.server, s.joins)
	go func() { _ = s.server.Serve(lis) }()
	return s, nil
}

func (s *signer) close() { s.server.Stop() }

// worker waits for the shim and its address.
func (s *signer) worker(ctx context.Context) (address string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		changed := s.fleet.Changed()
		for _, w := range s.fleet.View().Workers {
			if w.State == fleet.Ready {
				s.shim = w.Addr
				return w.Addr, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", fmt.Errorf("the shim did not join: %w", ctx.Err())
		}
	}
}

// sign makes n contexts, each for one use, on two cores.
func (s *signer) sign(n int) []string {
	tokens, now, mint := make([]string, n), time.Now(), s.minter.Mint
	if secret, ok := s.joins.Secret(s.shim); ok {
		mint = func(c identity.Context, now time.Time) string {
			return s.minter.MintFor(c, now, []identity.Secret{secret})
		}
	}
	first := s.serial
	s.serial += uint64(n)
	var wg sync.WaitGroup
	const cores = 2
	for part := range cores {
		wg.Go(func() {
			for i := part; i < n; i += cores {
				tokens[i] = mint(identity.Context{
					Admission: fmt.Sprintf("5b1f6c0e-8f7e-4b53-9d2a-%012d", first+uint64(i)),
					Key:       "k", Team: "t", Model: "bench", Endpoint: "bench", Revision: 1,
				}, now)
			}
		})
	}
	wg.Wait()
	return tokens
}
