package envoy

import (
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	"google.golang.org/protobuf/proto"
)

const (
	// leastBuffer is the least that Envoy holds of a client's connection before it stops reading, in bytes.
	leastBuffer  = 64 << 10
	maxHeadersKB = 32 // of one request, all headers together
	maxHeaders   = 100
	// What a client may send ahead over HTTP/2 before Envoy reads it, in bytes.
	clientStreamWindow = 256 << 10
	clientWindow       = 1 << 20
	// A client that vanished without a word is noticed, and its engine freed.
	clientPing = 30 * time.Second
	clientPong = 10 * time.Second
)

// listener serves clients. With a route it is complete in itself, without one it asks for the route over ADS.
func (d Door) listener(route *routev3.RouteConfiguration) *listenerv3.Listener {
	m := d.manager()
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: overADS(), RouteConfigName: routeName}}
	if route != nil {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: route}
	}
	return &listenerv3.Listener{
		Name:    listenerName,
		Address: address(d.Listen),
		// A connection that says nothing is closed after a while: it takes the place of somebody who has something to say.
		ListenerFilters:        []*listenerv3.ListenerFilter{d.inspector()},
		ListenerFiltersTimeout: secs(d.HeadersTimeout),
		FilterChains: []*listenerv3.FilterChain{{
			TransportSocket: d.transport(route != nil),
			Filters: []*listenerv3.Filter{{
				Name: "envoy.filters.network.http_connection_manager", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(m)},
			}},
		}},
		// Small, so that a stranger's upload waits in the kernel while its headers are checked. The full ext_authz raises
		// the limit to BodyLimit for the request that it reads; the copy for retries follows that limit. A larger limit of
		// the route (request_body_buffer_limit) would hold for strangers too.
		PerConnectionBufferLimitBytes: u32(uint32(max(d.HeadCheckAbove, leastBuffer))),
		TrafficDirection:              corev3.TrafficDirection_INBOUND,
	}
}

// inspector waits for a connection's first bytes. What it finds in them is not used.
func (d Door) inspector() *listenerv3.ListenerFilter {
	name, config := "envoy.filters.listener.http_inspector", proto.Message(&httpinspectorv3.HttpInspector{})
	if d.TLSCert != "" {
		name, config = "envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{}
	}
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: pack(config)}}
}

// manager is the connection manager without its route.
func (d Door) manager() *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix: listenerName, ServerName: "spokegate",
		CodecType:   hcmv3.HttpConnectionManager_AUTO,
		HttpFilters: d.filters(),

		EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{d.earlyMutation()},
		NormalizePath:                 yes(),
		MergeSlashes:                  true,
		PathWithEscapedSlashesAction:  hcmv3.HttpConnectionManager_REJECT_REQUEST,
		UseRemoteAddress:              yes(),
		XffNumTrustedHops:             uint32(d.TrustedHops),

		GenerateRequestId:            yes(),
		RequestIdExtension:           requestID(),
		AlwaysSetRequestIdInResponse: true,

		RequestHeadersTimeout: secs(d.HeadersTimeout),
		// A client that still sends its body reads why it was refused before the connection is reset.
		DelayedCloseTimeout: secs(5 * time.Second),
		RequestTimeout:      secs(d.RequestTimeout),
		StreamIdleTimeout:   secs(d.IdleTimeout),
		MaxRequestHeadersKb: u32(maxHeadersKB),
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout:                  secs(d.ConnectionIdle),
			MaxHeadersCount:              u32(maxHeaders),
			HeadersWithUnderscoresAction: corev3.HttpProtocolOptions_REJECT_REQUEST,
		},
		Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
			MaxConcurrentStreams:        u32(d.MaxStreams),
			InitialStreamWindowSize:     u32(clientStreamWindow),
			InitialConnectionWindowSize: u32(clientWindow),
			ConnectionKeepalive:         &corev3.KeepaliveSettings{Interval: secs(clientPing), Timeout: secs(clientPong)},
		},
		Tracing:          d.tracing(),
		AccessLog:        []*accesslogv3.AccessLog{accessLog()},
		AccessLogOptions: &hcmv3.HttpConnectionManager_HcmAccessLogOptions{AccessLogFlushInterval: secs(logEvery)},
		LocalReplyConfig: d.localReplies(),
	}
}

// requestID makes plain UUIDs: the id is an admission's name and carries no hint about tracing.
func requestID() *hcmv3.RequestIDExtension {
	return &hcmv3.RequestIDExtension{TypedConfig: pack(&uuidv3.UuidRequestIdConfig{PackTraceReason: no()})}
}

// logEvery is how often Envoy tells the door of a request that still runs: what has passed of a stream is known by then, should
// Envoy die.
const logEvery = time.Second

// accessLog tells the door process how each request ended, at once, and every logEvery of one that runs. Everything is logged, refusals as well: a yes whose
// answer Envoy never used, because the client had left, must end its flight too. The sink ignores ids that it does not know.
func accessLog() *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{
		Name: "envoy.access_loggers.http_grpc",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: pack(&grpclogv3.HttpGrpcAccessLogConfig{
			CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{
				LogName:             AccessLogName,
				GrpcService:         grpcService(logCluster, 0),
				TransportApiVersion: corev3.ApiVersion_V3,
				BufferSizeBytes:     u32(0), // one message a request, sent when it ends
				BufferFlushInterval: secs(time.Second),
			},
		})},
	}
}
