package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spokegate/spokegate/openai"
)

// pool is the route to the workers of an endpoint, as route has it: only what admission has let through comes that far, for
// nobody but the door writes the two headers.
func (g Gateway) pool(p Pool) []Object {
	name := g.Name + "-" + objectName(p.Endpoint)
	to := Object{"group": "", "kind": "Service", "name": p.Service, "port": p.Port}
	var objects []Object
	switch {
	case p.Service != "":
	case len(p.Addresses) == 0:
		to["name"], to["port"] = name, workerPort
		objects = append(objects, g.workerService(name, p.Endpoint))
	default:
		to = Object{"group": envoyGroup, "kind": "Backend", "name": name}
		var at list
		for _, a := range p.Addresses {
			at = append(at, Object{"ip": Object{"address": a.Addr().String(), "port": int(a.Port())}})
		}
		objects = append(objects, g.object(envoyGroup+"/v1alpha1", "Backend", name, Object{"endpoints": at}))
	}
	headers := list{
		Object{"type": "Exact", "name": EndpointHeader, "value": ClusterName(p.Endpoint)},
		Object{"type": "RegularExpression", "name": ContextHeader, "value": ".+"},
	}
	return append(objects, g.route(name, Object{
		"matches": list{Object{"path": anyGatewayPath(), "headers": headers}},
		"filters": list{Object{"type": "RequestHeaderModifier", "requestHeaderModifier": Object{"remove": gatewayRemovals()}}},
		// An answer may take as long as it moves.
		"timeouts":    Object{"request": gatewayTime(0)},
		"backendRefs": list{to},
	}))
}

// workerPort is where shims serve on Kubernetes.
const workerPort = 9000

// workerService has the pods of an endpoint's workers, as our charts label them.
func (g Gateway) workerService(name, endpoint string) Object {
	return g.object("v1", "Service", name, Object{
		"selector": Object{"app.kubernetes.io/name": "spokegate", "app.kubernetes.io/component": "worker", "spokegate.io/endpoint": endpoint},
		"ports":    list{Object{"name": "serve", "port": workerPort, "targetPort": workerPort}},
	})
}

// gatewayRemovals leave the header that names the workers: Envoy reads it when it has removed these. The shim takes it away.
func gatewayRemovals() list {
	var names list
	for _, name := range upstreamRemovals() {
		if name != DestinationKey {
			names = append(names, name)
		}
	}
	return names
}

// notAdmitted is where a request is until it is admitted, or stays: as demandContext has it.
func (g Gateway) notAdmitted() []Object {
	name := g.Name + "-not-admitted"
	e := client(http.StatusForbidden, "forbidden", "This request was not admitted.")
	return []Object{
		g.object(envoyGroup+"/v1alpha1", "HTTPRouteFilter", name, Object{"directResponse": Object{
			"statusCode": e.Status, "contentType": "application/json", "body": Object{"type": "Inline", "inline": string(e.Body(openai.Chat))},
		}}),
		g.route(name, Object{
			"matches": list{Object{"path": anyGatewayPath()}},
			"filters": list{Object{"type": "ExtensionRef", "extensionRef": Object{"group": envoyGroup, "kind": "HTTPRouteFilter", "name": name}}},
		}),
	}
}

func (g Gateway) route(name string, rule Object) Object {
	return g.object(gatewayGroup+"/v1", "HTTPRoute", name, Object{
		"parentRefs": list{Object{"name": g.Name}}, "rules": list{rule},
	})
}

func anyGatewayPath() Object { return Object{"type": "PathPrefix", "value": "/"} }

// workerTraffic is as endpointCluster and retries. A worker that the gateway does not know is passed over; where it knows none of
// those that are named, it takes another by turns: it has no policy that finds nobody.
func (g Gateway) workerTraffic() Object {
	r := g.Door.retries()
	backOff := func(d *durationpb.Duration) string { return gatewayTime(d.AsDuration()) }
	return g.policy("BackendTrafficPolicy", Object{
		"loadBalancer":   Object{"type": "RoundRobin", "endpointOverride": Object{"extractFrom": list{Object{"header": DestinationKey}}}},
		"circuitBreaker": gatewayBreakers(),
		"connection":     Object{"bufferLimit": connectionBuffer},
		"tcpKeepalive":   Object{"probes": workerProbes, "idleTime": gatewayTime(workerProbeAfter), "interval": gatewayTime(workerProbeEach)},
		"retry": Object{
			"numRetries": r.NumRetries.GetValue(),
			"retryOn":    Object{"triggers": texts(strings.Split(r.RetryOn, ",")), "httpStatusCodes": r.RetriableStatusCodes},
			"perRetry":   Object{"backOff": Object{"baseInterval": backOff(r.RetryBackOff.BaseInterval), "maxInterval": backOff(r.RetryBackOff.MaxInterval)}},
		},
		"timeout": Object{
			"tcp": Object{"connectTimeout": gatewayTime(g.Door.ConnectTimeout)},
			"http": Object{"requestTimeout": gatewayTime(0), "streamIdleTimeout": gatewayTime(g.Door.IdleTimeout),
				"connectionIdleTimeout": gatewayTime(workerIdle)},
		},
	})
}

var labelOK = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$`)

// objectName is a name for objects: an endpoint's own, where it is fit for one and taken by no object of ours.
func objectName(endpoint string) string {
	if labelOK.MatchString(endpoint) && !slices.Contains([]string{"door", "doors", "not-admitted"}, endpoint) {
		return endpoint
	}
	sum := sha256.Sum256([]byte(endpoint))
	return "endpoint-" + hex.EncodeToString(sum[:6])
}
