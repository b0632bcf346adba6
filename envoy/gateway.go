package envoy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// Gateway says what the Envoys of an Envoy Gateway are to do in the place of a door's own: the same Door, in the words of
// Kubernetes objects. What these cannot say is told in docs/gateways.md.
type Gateway struct {
	// Door has what is common to both: sockets, limits, times, names. Of Listen only the port counts.
	Door Door
	// Name is that of the objects, or what their names begin with. Default "spokegate".
	Name string
	// Namespace is where they are. Default "default".
	Namespace string
	// TLSSecret is the Secret of the listener's certificate. Empty: plain HTTP.
	TLSSecret string
	// Pools are the endpoints of the policy and where their workers are.
	Pools []Pool
	// Sidecar is the door process in each of the gateway's pods.
	Sidecar Sidecar
	// HostEnvoy is the version of Envoy, where Envoy Gateway runs it on its own machine, with the door process beside it. Empty:
	// it is on Kubernetes.
	HostEnvoy string
}

// Pool is where the workers of an endpoint are: behind a Service, whose pods the gateway asks by their own addresses, or at
// addresses. Where neither is said, it is all pods that are labelled as workers of the endpoint.
type Pool struct {
	Endpoint  string
	Service   string
	Port      int // the Service's
	Addresses []netip.AddrPort
}

// Sidecar is the door process as a container.
type Sidecar struct {
	// Image has the binary.
	Image string
	// Dir is the door's folder. DoorSocket lies below it.
	Dir string
	// Args are the flags of `spokegate door`, but for its name and its folder.
	Args []string
	// Joins and Ops are the ports where workers join, and of the page for operators.
	Joins, Ops int
	// Secret is mounted at SidecarSecrets, if it is there. Default "NAME-door".
	Secret string
}

// SidecarSecrets is where a sidecar finds tokens, certificates and a policy.
const SidecarSecrets = "/etc/spokegate"

// SidecarRedis is the key of that Secret with the URL of the doors' Redis, which may have a password.
const SidecarRedis = "redis-url"

func (g Gateway) withDefaults() Gateway {
	g.Door = g.Door.withDefaults()
	def(&g.Name, "spokegate")
	def(&g.Namespace, "default")
	def(&g.Sidecar.Secret, g.Name+"-door")
	return g
}

// Validate says what is wrong with g, all of it; what a gateway cannot do is.
func (g Gateway) Validate() error {
	g = g.withDefaults()
	errs := []error{g.Door.Validate()}
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("envoy gateway: "+format, args...))
		}
	}
	d := g.Door
	bad(d.TrustedHops != 0, "trusted hops: it does not tell admission what proxies before it have seen; let them speak the PROXY protocol")
	bad(d.PickerSocket != "", "a picker of its own: the pick rides on the admission's answer")
	bad(d.WorkerTLS.Given(), "TLS towards workers: it cannot hold a certificate against the worker that was named")
	bad(d.TLSCert != "", "a certificate from a file: name its Secret, by -tls-secret")
	bad(d.Collector != "", "a collector of traces: its spans would take the client's word for what is traced")
	bad(len(g.Pools) == 0, "there is no endpoint: name them by -policy, or each by -workers")
	for _, p := range g.Pools {
		bad(p.Service != "" && len(p.Addresses) > 0, "endpoint %s: want either a Service or addresses", p.Endpoint)
		bad(g.HostEnvoy != "" && len(p.Addresses) == 0, "endpoint %s: want addresses, without Kubernetes", p.Endpoint)
		bad(p.Service != "" && (p.Port < 1 || p.Port > 65535), "endpoint %s: port %d", p.Endpoint, p.Port)
	}
	bad(g.HostEnvoy == "" && g.Sidecar.Image == "", "the image of the door process is missing")
	return errors.Join(errs...)
}

func (g Gateway) port() int {
	_, port, _ := net.SplitHostPort(g.Door.Listen)
	n, _ := strconv.Atoi(port)
	return n
}

// Object is one Kubernetes object, or a part of one.
type Object = map[string]any

type list = []any

const (
	gatewayGroup = "gateway.networking.k8s.io"
	envoyGroup   = "gateway.envoyproxy.io"
)

// Objects are all that Envoy Gateway needs. Equal values give equal objects, in equal order.
func (g Gateway) Objects() []Object {
	g = g.withDefaults()
	objects := []Object{
		g.object(gatewayGroup+"/v1", "GatewayClass", "", Object{
			"controllerName": envoyGroup + "/gatewayclass-controller",
			"parametersRef":  Object{"group": envoyGroup, "kind": "EnvoyProxy", "name": g.Name, "namespace": g.Namespace},
		}),
		g.object(gatewayGroup+"/v1", "Gateway", g.Name, Object{"gatewayClassName": g.Name, "listeners": list{g.listener()}}),
		g.envoyProxy(),
		g.clientTraffic(),
		g.doorBackend(),
		g.security(),
		g.metering(),
		g.workerTraffic(),
	}
	objects = append(objects, g.notAdmitted()...)
	for _, p := range g.Pools {
		objects = append(objects, g.pool(p)...)
	}
	if g.HostEnvoy == "" {
		objects = append(objects, g.joinService())
	}
	return objects
}

// object is one with a spec. Without a name it is the class, which is in no namespace.
func (g Gateway) object(version, kind, name string, spec Object) Object {
	meta := Object{"name": name, "namespace": g.Namespace}
	if name == "" {
		meta = Object{"name": g.Name}
	}
	return Object{"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
}

// policy is one of Envoy Gateway's for the whole Gateway.
func (g Gateway) policy(kind string, spec Object) Object {
	spec["targetRefs"] = list{Object{"group": gatewayGroup, "kind": "Gateway", "name": g.Name}}
	return g.object(envoyGroup+"/v1alpha1", kind, g.Name, spec)
}

func (g Gateway) listener() Object {
	l := Object{"name": "clients", "protocol": "HTTP", "port": g.port(), "allowedRoutes": Object{"namespaces": Object{"from": "Same"}}}
	if g.TLSSecret != "" {
		l["protocol"], l["tls"] = "HTTPS", Object{"mode": "Terminate", "certificateRefs": list{Object{"name": g.TLSSecret}}}
	}
	return l
}
