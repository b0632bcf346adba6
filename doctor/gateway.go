package doctor

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// gateway is an Envoy, by what its admin page says.
type gateway struct {
	admin   string
	err     error // why it says nothing
	version string
	door    *process // ours beside it; nil: none is known

	bootstrap node
	listeners []listener
	clusters  map[string]node
	routes    map[string]node
	refused   []string // configuration that it did not take
}

// listener is one place where requests come in, with one chain of filters.
type listener struct {
	name, address string
	tls           bool
	conf          node
	manager       node
	filters       []filter
	routes        []node // with all that a virtual host says
}

// filter is one of a chain, without what may be wrapped around it. off: only routes turn it on, each with their word.
type filter struct {
	name string
	conf node
	off  bool
}

func (g *gateway) where() string { return "envoy " + g.admin }

// askGateways reads each Envoy's configuration.
func (e *exam) askGateways(ctx context.Context, admins []string) {
	for _, at := range admins {
		g := &gateway{admin: at, clusters: map[string]node{}, routes: map[string]node{}}
		for _, p := range e.of("door") {
			if p.flag("admin") != "" && socketOr(p.flag("admin")) == at {
				g.door = p
			}
		}
		ctx, cancel := context.WithTimeout(ctx, e.Patience)
		g.err = g.read(ctx)
		cancel()
		e.gateways = append(e.gateways, g)
	}
}

func (g *gateway) read(ctx context.Context) error {
	a, err := getLarge(ctx, g.admin, "/config_dump?include_eds")
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("/config_dump answers %d", a.status)
	}
	dump, err := parseNode(a.body)
	if err != nil {
		return fmt.Errorf("what answers is no Envoy's admin page: %w", err)
	}
	var info struct{ Version string }
	if err := getJSON(ctx, g.admin, "/server_info", &info); err != nil {
		return err
	}
	if parts := strings.Split(info.Version, "/"); len(parts) > 1 {
		g.version = parts[1]
	}
	return g.take(dump)
}

// take finds its way through a dump.
func (g *gateway) take(dump node) error {
	var listeners []node
	for _, c := range dump.at("configs").list() {
		for _, x := range c.at("static_clusters").list() {
			g.clusters[x.at("cluster", "name").text()] = x.at("cluster")
		}
		for _, x := range c.at("dynamic_active_clusters").list() {
			g.clusters[x.at("cluster", "name").text()] = x.at("cluster")
			g.note(x, "cluster "+x.at("cluster", "name").text())
		}
		for _, x := range c.at("static_listeners").list() {
			listeners = append(listeners, x.at("listener"))
		}
		for _, x := range c.at("dynamic_listeners").list() {
			if x.at("active_state", "listener").there() {
				listeners = append(listeners, x.at("active_state", "listener"))
			}
			g.note(x, "listener "+x.at("name").text())
		}
		for _, key := range []string{"static_route_configs", "dynamic_route_configs"} {
			for _, x := range c.at(key).list() {
				g.routes[x.at("route_config", "name").text()] = x.at("route_config")
				g.note(x, "routes "+x.at("route_config", "name").text())
			}
		}
		if c.at("bootstrap").there() {
			g.bootstrap = c.at("bootstrap")
		}
	}
	if !g.bootstrap.there() {
		return fmt.Errorf("what answers is no Envoy's admin page: it tells no bootstrap")
	}
	for _, l := range listeners {
		g.chains(l)
	}
	return nil
}

func (g *gateway) note(x node, what string) {
	if s := x.at("error_state"); s.there() {
		g.refused = append(g.refused, what+": "+s.at("details").text())
	}
}

// chains adds each chain of filters of a listener that ends in HTTP.
func (g *gateway) chains(l node) {
	chains := l.at("filter_chains").list()
	if d := l.at("default_filter_chain"); d.there() {
		chains = append(chains, d)
	}
	for _, c := range chains {
		for _, f := range c.at("filters").list() {
			if !f.at("typed_config").isType("HttpConnectionManager") {
				continue
			}
			m := f.at("typed_config")
			out := listener{name: l.at("name").text(), address: addressOf(l.at("address")), tls: c.at("transport_socket").there(), conf: l, manager: m}
			for _, h := range m.at("http_filters").list() {
				out.filters = append(out.filters, unwrap(h))
			}
			routes := m.at("route_config")
			if name := m.at("rds", "route_config_name").text(); name != "" {
				routes = g.routes[name]
			}
			out.routes = flatten(routes)
			g.listeners = append(g.listeners, out)
		}
	}
}

// unwrap takes the matcher from around a filter.
func unwrap(h node) filter {
	c := h.at("typed_config")
	if c.isType("ExtensionWithMatcher") {
		c = c.at("extension_config", "typed_config")
	}
	return filter{name: h.at("name").text(), conf: c, off: h.at("disabled").yes()}
}

// flatten gives all routes that lead to a cluster, each below what its virtual host says for all.
func flatten(routes node) (out []node) {
	for _, h := range routes.at("virtual_hosts").list() {
		for _, r := range h.at("routes").list() {
			if r.at("route").there() {
				m := r.members()
				both := map[string]any{"host": h.v}
				for k, v := range m {
					both[k] = v.v
				}
				out = append(out, node{both})
			}
		}
	}
	return out
}

// addressOf is Envoy's form of an address, as ours.
func addressOf(a node) string {
	if p := a.at("pipe", "path").text(); p != "" {
		return "unix:" + p
	}
	s := a.at("socket_address")
	return net.JoinHostPort(s.at("address").text(), strconv.Itoa(int(s.at("port_value").number(0))))
}

// all gives the filters of a type, by the end of its name.
func (l listener) all(suffix string) (out []filter) {
	for _, f := range l.filters {
		if f.conf.isType(suffix) {
			out = append(out, f)
		}
	}
	return out
}

func (l listener) index(suffix string) int {
	return slices.IndexFunc(l.filters, func(f filter) bool { return f.conf.isType(suffix) })
}

const (
	extAuthz = "ext_authz.v3.ExtAuthz"
	extProc  = "ext_proc.v3.ExternalProcessor"
	router   = "router.v3.Router"
	rbac     = "rbac.v3.RBAC"
)

// serves says that requests for models come in here: it asks for admission, or a picker.
func (l listener) serves() bool { return l.index(extAuthz) >= 0 || l.index(extProc) >= 0 }

// clusterOf is the cluster that a filter calls, by gRPC or by HTTP.
func clusterOf(conf node) string {
	return orElse(conf.at("grpc_service", "envoy_grpc", "cluster_name").text(), conf.at("http_service", "server_uri", "cluster").text())
}

// patienceOf is how long a filter waits for whom it calls; 0: for ever, or it calls nobody.
func patienceOf(conf node) time.Duration {
	switch rpc, plain := conf.at("grpc_service"), conf.at("http_service", "server_uri"); {
	case rpc.there():
		return rpc.at("timeout").duration(200 * time.Millisecond)
	case plain.there():
		return plain.at("timeout").duration(0)
	}
	return 0
}
