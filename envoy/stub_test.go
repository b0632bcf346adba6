package envoy

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	statusv3 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
)

// patience bounds every wait on a fact.
const patience = 2 * time.Minute

// notes collects what a stub saw, by request id, and wakes who waits for it.
type notes[T any] struct {
	mu      sync.Mutex
	seen    map[string][]T
	changed chan struct{}
}

func newNotes[T any]() *notes[T] {
	return &notes[T]{seen: map[string][]T{}, changed: make(chan struct{})}
}

func (n *notes[T]) add(id string, v T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen[id] = append(n.seen[id], v)
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *notes[T]) get(id string) ([]T, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]T(nil), n.seen[id]...), n.changed
}

// all lists the ids that were seen.
func (n *notes[T]) all() (ids []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id := range n.seen {
		ids = append(ids, id)
	}
	return ids
}

// await waits until what was seen for id fulfils a condition.
func (n *notes[T]) await(t *testing.T, id string, ok func([]T) bool) []T {
	t.Helper()
	limit := time.After(patience)
	for {
		got, changed := n.get(id)
		if ok(got) {
			return got
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("waited in vain for request %s; seen %+v", id, got)
		}
	}
}

func some[T any](got []T) bool { return len(got) > 0 }

// check is one ext_authz call.
type check struct {
	kind    string // head or full
	headers map[string]string
	path    string
	body    []byte
	source  string // the client's IP
}

// stubAuthz says yes to "Bearer good". The test's own request headers steer it:
//
//	x-test-pick      the ordered endpoints; absent: none
//	x-test-endpoint  the endpoint, "large" by default; "-" for no header
//	x-test-context   "-" for no context
//	x-test-hang      wait until the call is cancelled
type stubAuthz struct {
	authv3.UnimplementedAuthorizationServer
	checks *notes[check]
}

func (s *stubAuthz) Check(ctx context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	h := r.Attributes.Request.Http
	md, _ := metadata.FromIncomingContext(ctx)
	kind := strings.Join(md.Get(CheckKey), ",")
	s.checks.add(h.Headers[RequestIDHeader], check{kind: kind, headers: h.Headers, path: h.Path, body: h.RawBody,
		source: r.Attributes.Source.GetAddress().GetSocketAddress().GetAddress()})
	if h.Headers["x-test-hang"] == kind {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if h.Headers["authorization"] != "Bearer good" {
		return denied(401, `{"error":{"code":"invalid_api_key"}}`), nil
	}
	if kind == CheckHead {
		return &authv3.CheckResponse{Status: &statusv3.Status{}}, nil
	}
	return admitted(h.Headers), nil
}

func admitted(h map[string]string) *authv3.CheckResponse {
	ok := &authv3.OkHttpResponse{ResponseHeadersToAdd: []*corev3.HeaderValueOption{
		overwrite("x-ratelimit-limit-requests", "7"), overwrite(ExplainHeader, "because"),
	}}
	if h["x-test-context"] != "-" {
		ok.Headers = append(ok.Headers, overwrite(ContextHeader, "signed"))
	}
	endpoint := h["x-test-endpoint"]
	if endpoint == "" {
		endpoint = "large"
	}
	if endpoint != "-" {
		ok.Headers = append(ok.Headers, overwrite(EndpointHeader, ClusterName(endpoint)))
	}
	if n := h["x-test-retries"]; n != "" {
		ok.Headers = append(ok.Headers, overwrite(MaxRetriesHeader, n))
	}
	res := &authv3.CheckResponse{Status: &statusv3.Status{}, HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: ok}}
	if pick := h["x-test-pick"]; pick != "" {
		res.DynamicMetadata, _ = structpb.NewStruct(map[string]any{DestinationKey: pick})
	}
	return res
}

func denied(status int, body string) *authv3.CheckResponse {
	return &authv3.CheckResponse{
		Status: &statusv3.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(status)}, Body: body,
			Headers: []*corev3.HeaderValueOption{overwrite("content-type", "application/json")},
		}},
	}
}

// stubLog is the sink of the access log: of requests that are over, and of those that run.
type stubLog struct {
	alsv3.UnimplementedAccessLogServiceServer
	entries, running *notes[*accesslogv3.HTTPAccessLogEntry]
}

func (s *stubLog) StreamAccessLogs(stream alsv3.AccessLogService_StreamAccessLogsServer) error {
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			return stream.SendAndClose(&alsv3.StreamAccessLogsResponse{})
		}
		if err != nil {
			return err
		}
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			to := s.entries
			if e.CommonProperties.AccessLogType != accesslogv3.AccessLogType_DownstreamEnd {
				to = s.running
			}
			to.add(e.CommonProperties.StreamId, e)
		}
	}
}

// services is the stub of a door process.
type services struct {
	authz *stubAuthz
	meter *stubMeter
	log   *stubLog
}

func newServices() *services {
	return &services{
		authz: &stubAuthz{checks: newNotes[check]()}, meter: &stubMeter{ended: newNotes[metered]()},
		log: &stubLog{entries: newNotes[*accesslogv3.HTTPAccessLogEntry](), running: newNotes[*accesslogv3.HTTPAccessLogEntry]()},
	}
}

func (s *services) register(g *grpc.Server) {
	authv3.RegisterAuthorizationServer(g, s.authz)
	procv3.RegisterExternalProcessorServer(g, s.meter)
	alsv3.RegisterAccessLogServiceServer(g, s.log)
}

type logEntry = accesslogv3.HTTPAccessLogEntry
