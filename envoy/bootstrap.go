package envoy

import (
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	heapv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/fixed_heap/v3"
	injectedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/injected_resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spokegate/spokegate/fleet"
)

// Bootstrap is what Envoy starts with: how to reach the door process, which tells it all else.
func (d Door) Bootstrap() *bootstrapv3.Bootstrap {
	d = d.withDefaults()
	ads := grpcService(doorCluster, 0)
	// Back within a second or so once the door process is: Envoy's own patience grows to half a minute, in which no new worker
	// can be picked.
	ads.GetEnvoyGrpc().RetryPolicy = &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
		BaseInterval: secs(100 * time.Millisecond), MaxInterval: secs(time.Second)}}
	b := &bootstrapv3.Bootstrap{
		Node:            &corev3.Node{Id: d.Name, Cluster: "spokegate"},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: d.ownClusters()},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: &corev3.ApiConfigSource{
				ApiType: corev3.ApiConfigSource_DELTA_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
				GrpcServices:              []*corev3.GrpcService{ads},
				SetNodeOnFirstMessageOnly: true,
			},
			CdsConfig: overADS(), LdsConfig: overADS(),
		},
		OverloadManager: d.overload(),
	}
	if d.Admin != "" {
		b.Admin = &bootstrapv3.Admin{Address: address(d.Admin), IgnoreGlobalConnLimit: true}
	}
	return b
}

// Static is the whole configuration in one file, without ADS: for reading, and for envoy --mode validate.
func (d Door) Static(view *fleet.View, endpoints []string) *bootstrapv3.Bootstrap {
	d = d.withDefaults()
	b := d.Bootstrap()
	b.DynamicResources = nil
	b.StaticResources.Listeners = []*listenerv3.Listener{d.listener(d.route())}
	b.StaticResources.Secrets = append(d.secrets(), d.workerSecrets()...)
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, d.admission())
	for _, name := range unique(endpoints) {
		c := d.endpointCluster(name)
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		c.EdsClusterConfig, c.LoadAssignment = nil, d.assignment(view, name)
		d.encryptTo(c, true)
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, c)
	}
	return b
}

func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion:    corev3.ApiVersion_V3,
		// Rather a cluster without endpoints after this time than a listener that never opens.
		InitialFetchTimeout: durationpb.New(5 * time.Second),
	}
}

// grpcService calls one of the door's own clusters. Timeout 0 is none.
func grpcService(cluster string, timeout time.Duration, metadata ...*corev3.HeaderValue) *corev3.GrpcService {
	return &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster}},
		Timeout:         durationpb.New(timeout),
		InitialMetadata: metadata,
	}
}

const (
	heapMonitor        = "envoy.resource_monitors.fixed_heap"
	connectionsMonitor = "envoy.resource_monitors.global_downstream_max_connections"
	drainMonitor       = "envoy.resource_monitors.injected_resource"
)

func (d Door) overload() *overloadv3.OverloadManager {
	m := &overloadv3.OverloadManager{
		RefreshInterval: durationpb.New(250 * time.Millisecond),
		ResourceMonitors: []*overloadv3.ResourceMonitor{
			{Name: heapMonitor, ConfigType: &overloadv3.ResourceMonitor_TypedConfig{
				TypedConfig: pack(&heapv3.FixedHeapConfig{MaxHeapSizeBytes: d.MaxHeap})}},
			{Name: connectionsMonitor, ConfigType: &overloadv3.ResourceMonitor_TypedConfig{
				TypedConfig: pack(&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: d.MaxConnections})}},
		},
		Actions: []*overloadv3.OverloadAction{
			shed("envoy.overload_actions.shrink_heap", 0.90),
			shed("envoy.overload_actions.disable_http_keepalive", 0.92),
			shed("envoy.overload_actions.stop_accepting_requests", 0.95),
			shed("envoy.overload_actions.stop_accepting_connections", 0.98),
		},
	}
	if d.DrainFile != "" {
		d.leaveIdle(m)
	}
	return m
}

// leaveIdle takes the drain for a pressure under which connections may not be idle for long: nothing else makes Envoy say
// goodbye on a connection on which nothing is asked.
func (d Door) leaveIdle(m *overloadv3.OverloadManager) {
	m.ResourceMonitors = append(m.ResourceMonitors, &overloadv3.ResourceMonitor{
		Name:       drainMonitor,
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: pack(&injectedv3.InjectedResourceConfig{Filename: d.DrainFile})},
	})
	m.Actions = append(m.Actions, &overloadv3.OverloadAction{
		Name: "envoy.overload_actions.reduce_timeouts",
		Triggers: []*overloadv3.Trigger{{Name: drainMonitor, TriggerOneof: &overloadv3.Trigger_Scaled{
			Scaled: &overloadv3.ScaledTrigger{ScalingThreshold: 0.5, SaturationThreshold: 1}}}},
		TypedConfig: pack(&overloadv3.ScaleTimersOverloadActionConfig{
			TimerScaleFactors: []*overloadv3.ScaleTimersOverloadActionConfig_ScaleTimer{{
				Timer:          overloadv3.ScaleTimersOverloadActionConfig_HTTP_DOWNSTREAM_CONNECTION_IDLE,
				OverloadAdjust: &overloadv3.ScaleTimersOverloadActionConfig_ScaleTimer_MinTimeout{MinTimeout: secs(time.Second)},
			}}}),
	})
}

// shed starts an action when the heap is filled to this part.
func shed(action string, part float64) *overloadv3.OverloadAction {
	return &overloadv3.OverloadAction{Name: action, Triggers: []*overloadv3.Trigger{{
		Name:         heapMonitor,
		TriggerOneof: &overloadv3.Trigger_Threshold{Threshold: &overloadv3.ThresholdTrigger{Value: part}},
	}}}
}

// pack wraps a message, with the same bytes each time, because versions are made of bytes. It cannot fail for the messages
// of this package: marshalling fails only on text that is not UTF-8, which Validate and the fleet keep out.
func pack(m proto.Message) *anypb.Any {
	a := &anypb.Any{}
	_ = anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true})
	return a
}

func u32(n uint32) *wrapperspb.UInt32Value      { return wrapperspb.UInt32(n) }
func yes() *wrapperspb.BoolValue                { return wrapperspb.Bool(true) }
func no() *wrapperspb.BoolValue                 { return wrapperspb.Bool(false) }
func secs(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
