package envoy

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// oddGateway has no setting at its default.
func oddGateway() Gateway {
	d := Door{Listen: "0.0.0.0:8443", DoorSocket: "/var/lib/sg/run/door.sock", BodyLimit: 3 << 20, HeadCheckAbove: 70_000, MaxConnections: 777, MaxStreams: 55,
		Retries: 4, CheckTimeout: 7 * time.Second, HeadersTimeout: 11 * time.Second, RequestTimeout: 90 * time.Second, IdleTimeout: 13 * time.Minute,
		ConnectionIdle: 3 * time.Minute, ConnectTimeout: 2500 * time.Millisecond, Keepalive: 2 * time.Second}
	return Gateway{Door: d, Name: "sg", Namespace: "llm", Sidecar: Sidecar{Image: "spokegate:1", Dir: "/var/lib/sg", Joins: 8090, Ops: 10001},
		Pools: []Pool{{Endpoint: "large", Service: "large", Port: 9000}, {Endpoint: "Ünusual", Addresses: []netip.AddrPort{netip.MustParseAddrPort("[::1]:9")}}}}
}

// find gives the spec of the one object of a kind and name.
func (g Gateway) find(t *testing.T, kind, name string) Object {
	t.Helper()
	for _, o := range g.Objects() {
		if o["kind"] == kind && o["metadata"].(Object)["name"] == name {
			return o["spec"].(Object)
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

// in goes down by a path of names and indexes.
func in(t *testing.T, o any, path string) any {
	t.Helper()
	for step := range strings.SplitSeq(path, ".") {
		switch at := o.(type) {
		case Object:
			o = at[step]
		case list:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(at) {
				t.Fatalf("no %s of %s in %v", step, path, o)
			}
			o = at[i]
		default:
			t.Fatalf("no %s of %s in %v", step, path, o)
		}
	}
	return o
}

// TestGatewayIsAsTheDoor holds what both say against each other: a setting of one Door means the same to either Envoy.
func TestGatewayIsAsTheDoor(t *testing.T) {
	g := oddGateway()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, same := range map[string][]same{"clients": g.sameForClients(t), "door": g.sameToDoor(t), "workers": g.sameToWorkers(t)} {
		for _, s := range same {
			if err := s.differs(t); err != nil {
				t.Errorf("%s: %s: %v", name, s.path, err)
			}
		}
	}
	removed := in(t, g.find(t, "HTTPRoute", "sg-large"), "rules.0.filters.0.requestHeaderModifier.remove").(list)
	for _, name := range g.Door.withDefaults().route().VirtualHosts[0].RequestHeadersToRemove {
		if here := slices.Contains(removed, any(name)); here == (name == DestinationKey) {
			t.Errorf("%s goes to workers: %v", name, !here)
		}
	}
}

// same is what an object says, and what the door's own Envoy is told.
type same struct {
	object Object
	path   string
	want   any
}

func (s same) differs(t *testing.T) error {
	t.Helper()
	got, want := fmt.Sprint(in(t, s.object, s.path)), fmt.Sprint(s.want)
	switch w := s.want.(type) {
	case time.Duration:
		if d, err := time.ParseDuration(got); err == nil && d == w {
			return nil
		}
	case typev3.StatusCode:
		want = fmt.Sprint(int(w))
	}
	if got != want {
		return fmt.Errorf("it is %s, the door's Envoy has %s", got, want)
	}
	return nil
}

func (g Gateway) sameForClients(t *testing.T) []same {
	d := g.Door.withDefaults()
	m, clients := d.manager(), g.find(t, "ClientTrafficPolicy", "sg")
	return []same{
		{clients, "headers.withUnderscoresAction", "RejectRequest"},
		{clients, "path.escapedSlashesAction", "RejectRequest"},
		{clients, "http2.maxConcurrentStreams", m.Http2ProtocolOptions.MaxConcurrentStreams.Value},
		{clients, "http2.initialStreamWindowSize", m.Http2ProtocolOptions.InitialStreamWindowSize.Value},
		{clients, "http2.initialConnectionWindowSize", m.Http2ProtocolOptions.InitialConnectionWindowSize.Value},
		{clients, "http2.connectionKeepalive.interval", m.Http2ProtocolOptions.ConnectionKeepalive.Interval.AsDuration()},
		{clients, "connection.bufferLimit", d.listener(nil).PerConnectionBufferLimitBytes.Value},
		{clients, "connection.connectionLimit.value", d.MaxConnections},
		{clients, "timeout.http.requestHeadersReceivedTimeout", m.RequestHeadersTimeout.AsDuration()},
		{clients, "timeout.http.requestReceivedTimeout", m.RequestTimeout.AsDuration()},
		{clients, "timeout.http.streamIdleTimeout", m.StreamIdleTimeout.AsDuration()},
		{clients, "timeout.http.idleTimeout", m.CommonHttpProtocolOptions.IdleTimeout.AsDuration()},
		{clients, "timeout.tcp.connectionInspectionTimeout", d.listener(nil).ListenerFiltersTimeout.AsDuration()},
		{g.find(t, "Gateway", "sg"), "listeners.0.port", 8443},
	}
}

func (g Gateway) sameToDoor(t *testing.T) []same {
	d := g.Door.withDefaults()
	authz, door, breakers := filterOf(t, d, AuthzNamespace), d.socketCluster("x", d.DoorSocket, ping(d.Keepalive)), d.endpointCluster("large").CircuitBreakers.Thresholds[0]
	toDoor := protocolsOf(t, door).GetExplicitHttpConfig().GetHttp2ProtocolOptions()
	security, metering := g.find(t, "SecurityPolicy", "sg"), g.find(t, "EnvoyExtensionPolicy", "sg")
	backend, log := g.find(t, "Backend", "sg-door"), g.find(t, "EnvoyProxy", "sg")
	return []same{
		{security, "extAuth.bodyToExtAuth.maxRequestBytes", authz.WithRequestBody.MaxRequestBytes},
		{security, "extAuth.timeout", authz.GetGrpcService().Timeout.AsDuration()},
		{security, "extAuth.failOpen", authz.FailureModeAllow},
		{security, "extAuth.recomputeRoute", authz.ClearRouteCache},
		{security, "extAuth.statusOnError", authz.StatusOnError.Code},
		{security, "extAuth.grpc.backendSettings.http2.initialStreamWindowSize", toDoor.InitialStreamWindowSize.Value},
		{security, "extAuth.grpc.backendSettings.http2.initialConnectionWindowSize", toDoor.InitialConnectionWindowSize.Value},
		{security, "extAuth.grpc.backendSettings.http2.connectionKeepalive.interval", (pingPatience + 1) * toDoor.ConnectionKeepalive.Interval.AsDuration()},
		{security, "extAuth.grpc.backendSettings.http2.connectionKeepalive.timeout", toDoor.ConnectionKeepalive.Timeout.AsDuration()},
		{security, "extAuth.grpc.backendSettings.timeout.tcp.connectTimeout", door.ConnectTimeout.AsDuration()},
		{security, "extAuth.grpc.backendSettings.connection.bufferLimit", door.PerConnectionBufferLimitBytes.Value},
		{security, "extAuth.grpc.backendSettings.circuitBreaker.maxParallelRequests", breakers.MaxRequests.Value},
		{metering, "extProc.0.backendSettings.circuitBreaker.maxParallelRequests", breakers.MaxRequests.Value},
		{metering, "extProc.0.backendSettings.http2.connectionKeepalive.interval", (pingPatience + 1) * toDoor.ConnectionKeepalive.Interval.AsDuration()},
		{metering, "extProc.0.shadowMode", true},
		{metering, "extProc.0.failOpen", true},
		{backend, "endpoints.0.unix.path", door.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetPipe().Path},
		{log, "telemetry.accessLog.settings.0.sinks.0.als.logName", AccessLogName},
	}
}

func (g Gateway) sameToWorkers(t *testing.T) []same {
	d := g.Door.withDefaults()
	pool, action := d.endpointCluster("large"), d.route().VirtualHosts[0].Routes[0].GetRoute()
	http1, breakers, keepalive := protocolsOf(t, pool), pool.CircuitBreakers.Thresholds[0], pool.UpstreamConnectionOptions.TcpKeepalive
	workers := g.find(t, "BackendTrafficPolicy", "sg")
	return []same{
		{workers, "circuitBreaker.maxConnections", breakers.MaxConnections.Value},
		{workers, "circuitBreaker.maxPendingRequests", breakers.MaxPendingRequests.Value},
		{workers, "circuitBreaker.maxParallelRequests", breakers.MaxRequests.Value},
		{workers, "circuitBreaker.maxParallelRetries", breakers.MaxRetries.Value},
		{workers, "retry.numRetries", action.RetryPolicy.NumRetries.Value},
		{workers, "retry.retryOn.triggers", strings.Split(action.RetryPolicy.RetryOn, ",")},
		{workers, "retry.retryOn.httpStatusCodes", action.RetryPolicy.RetriableStatusCodes},
		{workers, "retry.perRetry.backOff.maxInterval", action.RetryPolicy.RetryBackOff.MaxInterval.AsDuration()},
		{workers, "timeout.http.requestTimeout", action.Timeout.AsDuration()},
		{workers, "timeout.http.streamIdleTimeout", action.IdleTimeout.AsDuration()},
		{workers, "timeout.http.connectionIdleTimeout", http1.CommonHttpProtocolOptions.IdleTimeout.AsDuration()},
		{workers, "timeout.tcp.connectTimeout", pool.ConnectTimeout.AsDuration()},
		{workers, "tcpKeepalive.probes", keepalive.KeepaliveProbes.Value},
		{workers, "tcpKeepalive.idleTime", time.Duration(keepalive.KeepaliveTime.Value) * time.Second},
		{workers, "loadBalancer.endpointOverride.extractFrom.0.header", DestinationKey},
	}
}

func protocolsOf(t *testing.T, c *clusterv3.Cluster) *upstreamv3.HttpProtocolOptions {
	t.Helper()
	o := &upstreamv3.HttpProtocolOptions{}
	if err := c.TypedExtensionProtocolOptions[protocolOptions].UnmarshalTo(o); err != nil {
		t.Fatal(err)
	}
	return o
}

// filterOf gives an ext_authz of the chain.
func filterOf(t *testing.T, d Door, name string) *authzv3.ExtAuthz {
	t.Helper()
	for _, f := range d.authorization() {
		a := &authzv3.ExtAuthz{}
		if f.Name == name && f.GetTypedConfig().UnmarshalTo(a) == nil {
			return a
		}
	}
	t.Fatalf("there is no filter %s", name)
	return nil
}

// TestGatewayHygiene: what one strips of a client's headers, the other does.
func TestGatewayHygiene(t *testing.T) {
	var own []*matcherv3.StringMatcher
	for _, m := range stripOwned() {
		own = append(own, m.GetAction().(*mutationv3.HeaderMutation_RemoveOnMatch_).RemoveOnMatch.KeyMatcher)
	}
	early := in(t, oddGateway().find(t, "ClientTrafficPolicy", "sg"), "headers.earlyRequestHeaders.removeOnMatch").(list)
	late := in(t, oddGateway().find(t, "ClientTrafficPolicy", "sg"), "headers.lateResponseHeaders.removeOnMatch").(list)
	names := []string{ContextHeader, PrefillContextHeader, RanksHeader, EndpointHeader, ClientTraceHeader, ClientAddressHeader, RefusedHeader, DestinationKey, ServedKey,
		AttemptHeader, MaxRetriesHeader, ExplainHeader, "x-spokegate-", "x-spokegate-e", "x-spokegate-explai", "x-spokegate-explains", "x-spokegate-explain-x", "x-spokegate-c",
		"x-spokegate-client", "x-spokegate-client-request-ids", "x-spokegate-xplain", "x-llm-d-x", "x-gateway-inference-objective", "x-data-parallel-rank", "x-prefiller-host-port",
		"authorization", "x-spokegat", "x-spokegateway", "content-type", "x-request-id", "x-session-id"}
	for _, name := range names {
		want := slices.ContainsFunc(own, func(m *matcherv3.StringMatcher) bool {
			return matches(name, m.GetPrefix(), m.GetSafeRegex().GetRegex())
		})
		if got := matchedBy(early, name); got != want {
			t.Errorf("%s of a client: stripped %v, the door's Envoy %v", name, got, want)
		}
		if got := matchedBy(late, name); got != want {
			t.Errorf("%s to a client: stripped %v, the door's Envoy %v", name, got, want)
		}
	}
	if matchedBy(early, ClientRequestIDHeader) || !matchedBy(late, ClientRequestIDHeader) {
		t.Error("the client's request id must be kept for admission, and for nobody else")
	}
}

func matchedBy(ms list, name string) bool {
	return slices.ContainsFunc(ms, func(m any) bool {
		o := m.(Object)
		if o["type"] == "Prefix" {
			return matches(name, o["value"].(string), "")
		}
		return matches(name, "", o["value"].(string))
	})
}

func matches(name, prefix, regex string) bool {
	if regex != "" {
		return regexp.MustCompile("^(?:" + regex + ")$").MatchString(name)
	}
	return prefix != "" && strings.HasPrefix(name, prefix)
}

// TestGatewayRefuses what Envoy Gateway has no words for, rather than leave it out.
func TestGatewayRefuses(t *testing.T) {
	for want, change := range map[string]func(*Gateway){
		"PROXY protocol":     func(g *Gateway) { g.Door.TrustedHops = 1 },
		"admission's answer": func(g *Gateway) { g.Door.PickerSocket = "/p" },
		"name its Secret":    func(g *Gateway) { g.Door.TLSCert, g.Door.TLSKey = "/c", "/k" },
		"traces":             func(g *Gateway) { g.Door.Collector = "c:1" },
		"no endpoint":        func(g *Gateway) { g.Pools = nil },
		"either":             func(g *Gateway) { g.Pools[1].Service = "s" },
		"want addresses":     func(g *Gateway) { g.HostEnvoy = "1.40.0" },
		"port 0":             func(g *Gateway) { g.Pools[0].Port = 0 },
		"image":              func(g *Gateway) { g.Sidecar.Image = "" },
		"listen address":     func(g *Gateway) { g.Door.Listen = "x" },
	} {
		g := oddGateway()
		change(&g)
		if err := g.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestGatewayObjectsAreTheSame(t *testing.T) {
	if !reflect.DeepEqual(oddGateway().Objects(), oddGateway().Objects()) {
		t.Error("equal values give other objects")
	}
}
