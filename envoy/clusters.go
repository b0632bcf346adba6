package envoy

import (
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	commonlbv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	overridev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	subsetv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/subset/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/spokegate/spokegate/fleet"
)

const (
	protocolOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	// connectionBuffer is how much of one connection Envoy holds before it stops reading, in bytes.
	connectionBuffer = 1 << 20
	// unlimited stands for no circuit breaker. Envoy's default of 1,024 would let responses go unmetered in silence and
	// requests wait for connections; admission bounds the load.
	unlimited = 1 << 30
	// What is on its way to the door process at one time, in bytes, and how long connecting to it may take.
	doorStreamWindow = 1 << 20
	doorWindow       = 16 << 20
	doorConnect      = 5 * time.Second
	// checkIdle is how long a connection for checks is kept that none runs on: what a burst has opened is closed again. Envoy closes it,
	// and the door never does, so that no check meets a connection that is being closed.
	checkIdle = 10 * time.Second
	// A worker whose host vanished without a word is noticed within half a minute.
	workerProbes     = 3
	workerProbeAfter = 15 * time.Second
	workerProbeEach  = 5 * time.Second
	// workerIdle is shorter than the shim's own, so that Envoy does not write into a connection that is being closed.
	workerIdle = 30 * time.Second
)

// ownClusters are those that the bootstrap needs: the door process, and the picker if there is one.
func (d Door) ownClusters() []*clusterv3.Cluster {
	// Nothing waits for the access log, so nothing has to be cut off where the door process hangs: what Envoy has written to
	// a connection that a ping then closes would be lost, and with it the end of a flight.
	cs := []*clusterv3.Cluster{
		d.socketCluster(doorCluster, d.DoorSocket, ping(d.Keepalive)),
		d.socketCluster(meterCluster, d.DoorSocket, ping(d.Keepalive)),
		d.socketCluster(logCluster, d.DoorSocket, nil),
	}
	if d.PickerSocket != "" {
		cs = append(cs, d.socketCluster(pickerCluster, d.PickerSocket, ping(d.Keepalive)))
	}
	if d.Collector != "" {
		cs = append(cs, d.collector())
	}
	return cs
}

// ping cuts off a process that is stopped; without it responses would stall for ever, for ext_proc in these modes knows no
// timeout. It has patience: an answer waits behind what crosses on the connection, and when a connection is closed because
// the machine was busy, all its streams go at once.
func ping(every time.Duration) *corev3.KeepaliveSettings {
	return &corev3.KeepaliveSettings{Interval: secs(every), Timeout: secs(pingPatience * every)}
}

const pingPatience = 10 // times the interval

// socketCluster is a gRPC server on a Unix socket.
func (d Door) socketCluster(name, path string, ping *corev3.KeepaliveSettings) *clusterv3.Cluster {
	h2 := &corev3.Http2ProtocolOptions{
		ConnectionKeepalive: ping, InitialStreamWindowSize: u32(doorStreamWindow), InitialConnectionWindowSize: u32(doorWindow),
	}
	return onSocket(name, path, map[string]*anypb.Any{protocolOptions: pack(&upstreamv3.HttpProtocolOptions{
		UpstreamProtocolOptions: explicit(&upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: h2},
		}),
	})})
}

// onSocket is a server of the door's at a Unix socket.
func onSocket(name, path string, protocol map[string]*anypb.Any) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                secs(doorConnect),
		PerConnectionBufferLimitBytes: u32(connectionBuffer),
		CircuitBreakers:               noBreakers(),
		LoadAssignment:                &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: locality(host(path))},
		TypedExtensionProtocolOptions: protocol,
	}
}

// admission is where the door process is asked about large bodies: HTTP/1.1 on a Unix socket, a connection for each check that
// runs. How many run is not bounded: a check may wait in the door for another client's, and none may wait for it. It is no part of
// the bootstrap, so that an Envoy which a door of an older release has started learns of it as well. A door process that hangs, the
// timeout of each check tells.
func (d Door) admission() *clusterv3.Cluster {
	return onSocket(admissionCluster, d.AdmissionSocket(), http1(checkIdle))
}

// http1 speaks HTTP/1.1, and closes a connection that has been idle for so long.
func http1(idle time.Duration) map[string]*anypb.Any {
	return map[string]*anypb.Any{protocolOptions: pack(&upstreamv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: secs(idle)},
		UpstreamProtocolOptions: explicit(&upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{}},
		}),
	})}
}

// endpointCluster is the pool of workers of one endpoint, over HTTP/1.1. Its endpoints come by EDS.
func (d Door) endpointCluster(endpoint string) *clusterv3.Cluster {
	name := ClusterName(endpoint)
	c := &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:              &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS(), ServiceName: name},
		ConnectTimeout:                secs(d.ConnectTimeout),
		PerConnectionBufferLimitBytes: u32(connectionBuffer),
		CircuitBreakers:               noBreakers(),
		LoadBalancingPolicy:           d.overrideHost(),
		UpstreamConnectionOptions: &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveProbes: u32(workerProbes), KeepaliveTime: u32(uint32(workerProbeAfter.Seconds())), KeepaliveInterval: u32(uint32(workerProbeEach.Seconds())),
		}},
		TypedExtensionProtocolOptions: http1(workerIdle),
	}
	d.encryptTo(c, false)
	return c
}

// overrideHost takes the workers that the metadata names, one an attempt, in that order. Envoy's policy fails open: when
// nothing valid is named, or the list is used up, it asks its fallback. Ours never has a host.
func (d Door) overrideHost() *clusterv3.LoadBalancingPolicy {
	from := AuthzNamespace
	if d.PickerSocket != "" {
		from = LBNamespace
	}
	return policy("envoy.load_balancing_policies.override_host", pack(&overridev3.OverrideHost{
		OverrideHostSources: []*overridev3.OverrideHost_OverrideHostSource{{Metadata: metadataKey(from, DestinationKey)}},
		SelectedHostKey:     metadataKey(LBNamespace, ServedKey),
		FallbackPolicy:      nobody(),
	}))
}

// nobody is a policy that finds no host: a subset by a key which no host carries, without a fallback.
func nobody() *clusterv3.LoadBalancingPolicy {
	return policy("envoy.load_balancing_policies.subset", pack(&subsetv3.Subset{
		FallbackPolicy:  subsetv3.Subset_NO_FALLBACK,
		SubsetSelectors: []*subsetv3.Subset_LbSubsetSelector{{Keys: []string{"spokegate-nobody"}}},
		SubsetLbPolicy: policy("envoy.load_balancing_policies.round_robin", pack(&roundrobinv3.RoundRobin{
			LocalityLbConfig: &commonlbv3.LocalityLbConfig{},
		})),
	}))
}

// assignment lists the workers of an endpoint that are ready, and those that drain: they are picked no more, and take what was
// picked before. Envoy takes hosts that are named whatever their health, so the ones that may not be taken are left out;
// requests that run there go on.
func (d Door) assignment(view *fleet.View, endpoint string) *endpointv3.ClusterLoadAssignment {
	var hosts []*endpointv3.LbEndpoint
	byAddr := func(a, b fleet.Worker) int { return strings.Compare(a.Addr, b.Addr) }
	for _, w := range slices.SortedFunc(slices.Values(view.Workers), byAddr) {
		if w.Endpoint == endpoint && (w.State == fleet.Ready || w.State == fleet.Draining) {
			h := host(w.Addr)
			d.named(h, w)
			hosts = append(hosts, h)
		}
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: ClusterName(endpoint), Endpoints: locality(hosts...)}
}

func locality(hosts ...*endpointv3.LbEndpoint) []*endpointv3.LocalityLbEndpoints {
	if len(hosts) == 0 {
		return nil
	}
	return []*endpointv3.LocalityLbEndpoints{{LbEndpoints: hosts}}
}

func host(addr string) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address(addr)}},
	}
}

func noBreakers() *clusterv3.CircuitBreakers {
	c := &clusterv3.CircuitBreakers{}
	for _, p := range []corev3.RoutingPriority{corev3.RoutingPriority_DEFAULT, corev3.RoutingPriority_HIGH} {
		c.Thresholds = append(c.Thresholds, &clusterv3.CircuitBreakers_Thresholds{
			Priority: p, MaxConnections: u32(unlimited), MaxPendingRequests: u32(unlimited),
			MaxRequests: u32(unlimited), MaxRetries: u32(unlimited),
		})
	}
	return c
}

func policy(name string, config *anypb.Any) *clusterv3.LoadBalancingPolicy {
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{
		{TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: name, TypedConfig: config}},
	}}
}

func metadataKey(namespace, key string) *metadatav3.MetadataKey {
	return &metadatav3.MetadataKey{Key: namespace, Path: []*metadatav3.MetadataKey_PathSegment{
		{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: key}},
	}}
}

func explicit(c *upstreamv3.HttpProtocolOptions_ExplicitHttpConfig) *upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_ {
	return &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: c}
}
