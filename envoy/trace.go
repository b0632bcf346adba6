package envoy

import (
	"context"
	"net"
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tagv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc/metadata"
)

// TraceService is the service.name of Envoy's own spans.
const TraceService = "spokegate-envoy"

// clientTraceHeaders would let a client decide what is traced, or write into our spans. They are taken away before Envoy
// looks at a request, traced or not: an engine behind us may trace as well.
var clientTraceHeaders = []string{"traceparent", "tracestate", "baggage", "x-client-trace-id"}

// dropClientTrace keeps the client's traceparent aside, if anybody will read it, and frees the name for Envoy's own.
func (d Door) dropClientTrace() (ms []*mutationv3.HeaderMutation) {
	if d.Collector != "" {
		ms = append(ms, keep(ClientTraceHeader, "%REQ("+clientTraceHeaders[0]+")%"))
	}
	for _, name := range clientTraceHeaders {
		ms = append(ms, remove(name))
	}
	return ms
}

// tracing makes a span of every request that Envoy's own dice choose. No header of a client takes part in that: theirs are
// gone, and client sampling is off. Services and workers follow Envoy's decision, which rides in the traceparent.
func (d Door) tracing() *hcmv3.HttpConnectionManager_Tracing {
	if d.Collector == "" {
		return nil
	}
	return &hcmv3.HttpConnectionManager_Tracing{
		ClientSampling: &typev3.Percent{}, RandomSampling: &typev3.Percent{Value: d.TracePercent}, OverallSampling: &typev3.Percent{Value: 100},
		SpawnUpstreamSpan: yes(), // one span an attempt, and the worker's below it
		Operation:         "request",
		CustomTags: []*tagv3.CustomTag{
			tag("spokegate.admission", "%REQ("+RequestIDHeader+")%"),
			// In the place of Envoy's own, which has the query string: people put keys there.
			tag("http.url", "%PATH(NQ)%"),
		},
		Provider: &tracev3.Tracing_Http{
			Name: "envoy.tracers.opentelemetry",
			ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: pack(&tracev3.OpenTelemetryConfig{
				GrpcService: grpcService(collectorCluster, 5*time.Second), ServiceName: TraceService,
			})},
		},
	}
}

func tag(name, format string) *tagv3.CustomTag {
	return &tagv3.CustomTag{Tag: name, Type: &tagv3.CustomTag_Value{Value: format}}
}

// collector is the cluster that spans go to. When it is away they are dropped, and no request waits.
func (d Door) collector() *clusterv3.Cluster {
	c := d.socketCluster(collectorCluster, d.Collector, nil)
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
	if _, err := netip.ParseAddrPort(d.Collector); err == nil {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	}
	c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: collectorCluster, Endpoints: locality(host(d.Collector))}
	return c
}

func collectorOK(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return false
	}
	_, err = netip.ParseAddrPort("127.0.0.1:" + port)
	return err == nil
}

// Traced gives the context of a call that Envoy makes the span in which it makes it, as a remote parent.
func Traced(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return propagation.TraceContext{}.Extract(ctx, callMetadata(md))
}

// callMetadata lets a propagator read gRPC metadata.
type callMetadata metadata.MD

func (m callMetadata) Get(key string) string {
	if v := metadata.MD(m).Get(key); len(v) == 1 {
		return v[0]
	}
	return ""
}

func (m callMetadata) Set(key, value string) { metadata.MD(m).Set(key, value) }

func (m callMetadata) Keys() []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}
