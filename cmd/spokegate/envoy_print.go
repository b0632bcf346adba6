package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/proto"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/limits"
)

// printFlags are what is to be printed of which door.
type printFlags struct {
	door      doorFlags
	target    string
	bootstrap bool
	gateway   envoy.Gateway
	workers   workerPlaces
}

// plainEnvoy is an Envoy of the door's own.
const plainEnvoy = "plain"

func (p *printFlags) register(f *flag.FlagSet) {
	p.door.register(f)
	f.StringVar(&p.target, "for", plainEnvoy, "`whose` configuration: "+plainEnvoy+", Envoy's own as a file, or "+envoyGateway+", the objects that make its Envoys do the same")
	f.BoolVar(&p.bootstrap, "bootstrap", false, "only what Envoy starts with: the door process tells it the rest")
	f.StringVar(&p.gateway.Name, "object", "spokegate", "`name` of the gateway's objects, or what their names begin with")
	f.StringVar(&p.gateway.Namespace, "namespace", "default", "`namespace` of the gateway's objects")
	f.StringVar(&p.gateway.TLSSecret, "tls-secret", "", "`Secret` with the certificate that clients of the gateway see; empty: plain HTTP")
	f.StringVar(&p.gateway.Sidecar.Image, "image", "", "container `image` with this binary, for the door process in the gateway's pods")
	f.StringVar(&p.gateway.Sidecar.Secret, "door-secret", "", "`Secret` that the door process finds at "+envoy.SidecarSecrets+" (default: the name of the objects, with -door)")
	f.StringVar(&p.gateway.HostEnvoy, "host-envoy", "", "`version` of Envoy, where Envoy Gateway runs it beside itself and not on Kubernetes")
	f.Var(&p.workers, "workers", "`ENDPOINT[=WHERE]` the workers of an endpoint are: a Service, SERVICE:PORT, or addresses, IP:PORT,IP:PORT; may be said again (default: the pods that are labelled as its workers, of each endpoint of -policy)")
}

// workerPlaces is a flag that may be said several times, once an endpoint.
type workerPlaces map[string]envoy.Pool

func (w *workerPlaces) String() string { return "" }

func (w *workerPlaces) Set(s string) error {
	endpoint, where, said := strings.Cut(s, "=")
	if endpoint == "" || said && where == "" {
		return fmt.Errorf("want ENDPOINT or ENDPOINT=WHERE")
	}
	if *w == nil {
		*w = workerPlaces{}
	}
	p := envoy.Pool{Endpoint: endpoint}
	if !said {
		(*w)[endpoint] = p
		return nil
	}
	for part := range strings.SplitSeq(where, ",") {
		if at, err := netip.ParseAddrPort(part); err == nil {
			p.Addresses = append(p.Addresses, at)
			continue
		}
		service, port, _ := strings.Cut(part, ":")
		n, err := strconv.Atoi(port)
		if err != nil || strings.Contains(where, ",") {
			return fmt.Errorf("%q is neither SERVICE:PORT nor IP:PORT", part)
		}
		p.Service, p.Port = service, n
	}
	(*w)[endpoint] = p
	return nil
}

// printEnvoy shows what a door with these flags tells its Envoy: in one file what bootstrap and ADS give it in parts. Or what
// a gateway has to be told for the same.
func printEnvoy(_ context.Context, args []string) error {
	var p printFlags
	f := flag.NewFlagSet("envoy print", flag.ContinueOnError)
	p.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	switch p.target {
	case plainEnvoy:
		return p.printPlain()
	case envoyGateway:
		if err := p.completeGateway(f); err != nil {
			return err
		}
		return p.printGateway()
	}
	return fmt.Errorf("-for %q: want %s or %s", p.target, plainEnvoy, envoyGateway)
}

func (p *printFlags) printPlain() error {
	if err := p.door.complete(); err != nil {
		return err
	}
	if p.bootstrap {
		return writeYAML(p.door.envoy.Bootstrap())
	}
	endpoints, err := p.endpoints()
	if err != nil {
		return err
	}
	return writeYAML(p.door.envoy.Static(fleet.New().View(), endpoints))
}

// endpoints are the policy's, if one is given.
func (p *printFlags) endpoints() ([]string, error) {
	if p.door.policy == "" {
		return nil, nil
	}
	_, snap, err := readPolicy(p.door.policy)
	if err != nil {
		return nil, err
	}
	return endpointNames(snap), nil
}

// Where the door process of a pod is, unless the flags say so.
const (
	sidecarDir   = "/var/lib/spokegate"
	sidecarJoins = 8090
	sidecarOps   = 10001
	gatewayPort  = "0.0.0.0:8080"
)

// completeGateway derives the gateway from the flags.
func (p *printFlags) completeGateway(f *flag.FlagSet) error {
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	onHost := p.gateway.HostEnvoy != ""
	for name, value := range map[string]string{"listen": gatewayPort, "dir": sidecarDir, "fleet-listen": fmt.Sprint("0.0.0.0:", sidecarJoins), "ops": fmt.Sprint("0.0.0.0:", sidecarOps)} {
		if !given[name] && (!onHost || name == "listen") {
			_ = f.Set(name, value) // an address or a path is no wrong value
		}
	}
	p.door.gateway = envoyGateway
	if err := p.door.complete(); err != nil {
		return err
	}
	if redis, err := limits.ParseRedisURL(p.door.redis); err == nil && given["redis"] && !onHost && redis.Password != "" {
		return fmt.Errorf("-redis: its password would stand in the objects: put the URL into the Secret of the door processes as %s", envoy.SidecarRedis)
	}
	names, err := p.endpoints()
	if err != nil {
		return err
	}
	names = slices.AppendSeq(names, maps.Keys(p.workers))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		pool, ok := p.workers[name]
		if !ok {
			pool = envoy.Pool{Endpoint: name}
		}
		p.gateway.Pools = append(p.gateway.Pools, pool)
	}
	p.gateway.Door = p.door.envoy
	p.gateway.Sidecar.Dir, p.gateway.Sidecar.Joins, p.gateway.Sidecar.Ops = p.door.dir, portOf(p.door.fleetFlags.listen), portOf(p.door.ops)
	p.gateway.Sidecar.Args = p.sidecarArgs(f, given)
	return p.gateway.Validate()
}

func (p *printFlags) printGateway() error {
	for i, o := range p.gateway.Objects() {
		doc, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Println("---")
		}
		fmt.Print(string(doc))
	}
	return nil
}

// portOf is the port of an address; 0: it has none.
func portOf(address string) int {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return n
}

// sidecarArgs are the flags of the door process: those that were given here, but for what is the pod's own. Its policy is in
// its Secret, if it does not come from a hub.
func (p *printFlags) sidecarArgs(all *flag.FlagSet, given map[string]bool) []string {
	door := flag.NewFlagSet("door", flag.ContinueOnError)
	new(doorFlags).register(door)
	given["fleet-listen"], given["ops"] = true, true
	var args []string
	door.VisitAll(func(f *flag.Flag) {
		switch f.Name {
		case "name", "dir", "listen", "policy", "join-token-file":
		default:
			if given[f.Name] {
				args = append(args, "-"+f.Name+"="+all.Lookup(f.Name).Value.String())
			}
		}
	})
	args = append(args, "-join-token-file="+cmp.Or(p.door.fleetFlags.tokenFile, envoy.SidecarSecrets+"/join-token"))
	if p.door.hubFlags.address == "" {
		args = append(args, "-policy="+envoy.SidecarSecrets+"/policy.yaml")
	}
	return args
}

func writeYAML(m proto.Message) error {
	out, err := envoy.YAML(m)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}
