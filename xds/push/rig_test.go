package push

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
	"github.com/spokegate/spokegate/xds/push/pushtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a token for tests alone"

// patience is for what must come, on a machine that is busy.
const patience = 3 * time.Minute

// rig is a hub's half with cuts in memory, on a real listener.
type rig struct {
	*pushtest.Cuts
	t      *testing.T
	server *Server
	addr   string
	log    *logged
}

// logged keeps what is logged at any level.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{Cuts: &pushtest.Cuts{}, t: t, log: &logged{}}
	cfg := Config{Cuts: r, Token: token, Registerer: prometheus.NewRegistry(), Every: time.Millisecond,
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.server, err = NewServer(cfg); err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = lis.Addr().String()
	g := grpc.NewServer(r.server.Options()...)
	r.server.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { _ = g.Serve(lis); ended <- struct{}{} }()
	go func() { _ = r.server.Run(ctx); ended <- struct{}{} }()
	t.Cleanup(func() { cancel(); g.Stop(); <-ended; <-ended })
	return r
}

// raw is a client that speaks the protocol by hand.
type raw struct {
	t      *testing.T
	node   *corev3.Node
	conn   *grpc.ClientConn
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel context.CancelFunc
}

// dial opens a stream as a door, "SPOKE/DOOR".
func (r *rig) dial(node string, options ...grpc.DialOption) *raw {
	r.t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(r.addr, options...)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token), patience)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &raw{r.t, &corev3.Node{Id: node}, conn, stream, cancel}
	r.t.Cleanup(c.close)
	return c
}

func (c *raw) close() { c.cancel(); _ = c.conn.Close() }

func (c *raw) send(m *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	m.Node, c.node = c.node, nil
	if err := c.stream.Send(m); err != nil {
		_, err = c.stream.Recv()
		c.t.Fatal(err)
	}
}

// instance names the start of the door, before anything is sent.
func (c *raw) instance(name string) *raw {
	c.node.Metadata, _ = structpb.NewStruct(map[string]any{delta.MetadataInstance: name})
	return c
}

func (c *raw) subscribe(kind string, has map[string]string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: delta.TypeURL(kind), ResourceNamesSubscribe: []string{delta.All}, InitialResourceVersions: has})
}

func (c *raw) unsubscribe(kind string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: delta.TypeURL(kind), ResourceNamesUnsubscribe: []string{delta.All}})
}

// follow subscribes to kinds, and to the Revision.
func (c *raw) follow(kinds ...string) *raw {
	c.t.Helper()
	for _, k := range append(kinds, delta.KindRevision) {
		c.subscribe(k, nil)
	}
	return c
}

func (c *raw) recv() *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

func (c *raw) ack(m *discoveryv3.DeltaDiscoveryResponse) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
}

func (c *raw) nack(m *discoveryv3.DeltaDiscoveryResponse, reason string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: &status.Status{Code: 3, Message: reason}})
}

// whole receives one revision, acknowledges all but its end, and says in words what came: "1: Team a b, Team -c".
func (c *raw) whole() (text string, end *discoveryv3.DeltaDiscoveryResponse) {
	c.t.Helper()
	var parts []string
	for {
		m := c.recv()
		kind := delta.Kind(m.TypeUrl)
		if kind == delta.KindRevision {
			return m.SystemVersionInfo + ": " + strings.Join(parts, ", "), m
		}
		words := []string{kind}
		for _, r := range m.Resources {
			words = append(words, r.Name)
		}
		for _, name := range m.RemovedResources {
			words = append(words, "-"+name)
		}
		parts = append(parts, strings.Join(words, " "))
		c.ack(m)
	}
}

// gets receives one revision, which must be this, and acknowledges it.
func (c *raw) gets(want string) {
	c.t.Helper()
	got, end := c.whole()
	if got != want {
		c.t.Fatalf("got %q, want %q", got, want)
	}
	c.ack(end)
}

// until waits until a door stands so.
func (r *rig) until(node, state string) Holder {
	r.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		all := r.server.Holders()
		i := slices.IndexFunc(all, func(h Holder) bool { return delta.Node(h.Spoke, h.Door) == node })
		if i >= 0 && all[i].State() == state {
			return all[i]
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s is not %s: %+v", node, state, all)
		}
	}
}

// teams publishes a revision with these teams beside those that are there.
func (r *rig) teams(names ...string) *policy.Cut {
	var list []policy.Resource
	for _, n := range names {
		list = append(list, pushtest.Team(n, 1))
	}
	return r.Next(list)
}

func gone(names ...string) (list []policy.Ref) {
	for _, n := range names {
		list = append(list, policy.Ref{Kind: policy.KindTeam, Name: n})
	}
	return list
}
