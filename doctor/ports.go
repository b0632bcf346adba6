package doctor

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

var portKinds = []Kind{
	{"ops-unreachable", "ports", Fault, "nothing answers where its pages are said to be: the process has ended, hangs, or a network is between", "look at its log; is -ops (or DIR/run) still right?"},
	{"ops-strange", "ports", CannotTell, "it does not say who it is, so little can be looked at", "is it a door, picker, worker or hub of a release that has /about?"},
	{"ops-open", "ports", Warning, "the pages need no key: whoever has that public address reads names of teams, endpoints and models, and can guess who asked what", "bind -ops to loopback or to a private address, or close the port in a firewall"},
	{"listener-closed", "ports", Fault, "clients do not get in", "is Envoy running, with the bootstrap of this door? Its log has the reason"},
	{"listener-lets-in", "ports", Fault, "a request without a key must be answered 401", "something else listens there, or Envoy runs with another configuration: look at the findings of envoy"},
	{"join-closed", "ports", Fault, "workers cannot join there, so no new one is ever picked", "the door's log says why it does not listen at -fleet-listen; a firewall may be between"},
	{"hub-closed", "ports", Warning, "doors get no new policy, and hear of no revoked key, until the hub is back; they serve on", "is the hub running, and -hub of the door right?"},
	{"worker-closed", "ports", Fault, "requests for this worker fail, or are tried elsewhere", "is the port open between doors and workers? -advertise of the worker must be what doors reach"},
	{"blocks-closed", "ports", Warning, "pickers cannot follow which blocks it holds: they guess", "open the worker's -blocks to the doors"},
	{"not-ready", "ports", Fault, "it cannot serve, and says why", "the line beside it is the reason; docs/operating.md tells what each means"},
}

// checkPorts looks whether what should listen does, and what should not be open is not.
func checkPorts(ctx context.Context, e *exam) {
	for _, p := range e.processes {
		switch {
		case p.err == nil:
			e.say("ops-unreachable", p.where(), false, "%s answers", p.ops)
			e.opsOpen(ctx, p)
		case p.old:
			e.found("ops-strange", p.where(), "%v", p.err)
		default:
			e.found("ops-unreachable", p.where(), "%v", p.err)
		}
	}
	for _, d := range e.of("door") {
		e.clientsPort(ctx, d)
		e.reach(ctx, "join-closed", d, d.flag("fleet-listen"))
		e.reach(ctx, "hub-closed", d, d.flag("hub"))
	}
	for _, h := range e.of("hub") {
		e.reach(ctx, "hub-closed", h, h.flag("push-listen"))
		e.reach(ctx, "hub-closed", h, h.flag("listen"))
	}
	for _, d := range e.of("door", "epp") {
		if d.fleet == nil {
			continue
		}
		together(d.fleet.Workers, func(w workerLine) {
			where := &process{about: About{Role: "worker", Name: w.Name, Spoke: d.about.Spoke}, here: d.here}
			e.reach(ctx, "worker-closed", where, w.Address)
			e.reach(ctx, "blocks-closed", where, w.Blocks)
		})
	}
}

// reach says whether something listens at an address that p knows. What is on the loopback of another machine, only that knows.
func (e *exam) reach(ctx context.Context, id string, p *process, address string) {
	if address == "" || onLoopback(address) && !p.here {
		return
	}
	if ip, err := netip.ParseAddr(host(address)); strings.HasPrefix(address, ":") || err == nil && ip.IsUnspecified() {
		address = p.at(address)
	}
	err := opens(ctx, address)
	e.say(id, p.where(), err != nil, "%s %s", address, orNil(err, "listens"))
}

func orNil(err error, otherwise string) string {
	if err != nil {
		return oneLine(err.Error())
	}
	return otherwise
}

// at is where an address with the host left open is reached: where the process's pages are.
func (p *process) at(address string) string {
	_, port, _ := net.SplitHostPort(address)
	h := host(p.ops)
	if h == "" {
		h = "127.0.0.1"
	}
	return net.JoinHostPort(h, port)
}

// clientsAddress is where a door's clients go, as far as it can be reached from here.
func (p *process) clientsAddress() string {
	at := p.flag("listen")
	if ip, err := netip.ParseAddr(host(at)); err == nil && ip.IsUnspecified() {
		at = p.at(at)
	}
	if p.flag("tls-cert") != "" {
		return "https://" + at
	}
	return at
}

// clientsPort knocks without a key.
func (e *exam) clientsPort(ctx context.Context, d *process) {
	at := d.clientsAddress()
	if onLoopback(at) && !d.here {
		return
	}
	a, err := get(ctx, at, "/v1/models")
	e.say("listener-closed", d.where(), err != nil, "%s %s", at, orNil(err, "answers"))
	if err == nil {
		e.say("listener-lets-in", d.where(), a.status != http.StatusUnauthorized, "without a key %s answers %d", at, a.status)
	}
}

// opsOpen looks whether pages are reached by a public address of this machine.
func (e *exam) opsOpen(ctx context.Context, p *process) {
	if !p.here {
		ip, err := netip.ParseAddr(host(p.ops))
		e.say("ops-open", p.where(), err == nil && public(ip), "its pages are read from another machine, at %s", p.ops)
		return
	}
	open := e.openPublicly(ctx, p.ops)
	e.say("ops-open", p.where(), open != "", "%s", orElse(open, "its pages are not at a public address of this machine"))
}

// openPublicly tries the port of an address of this machine at all its public ones.
func (e *exam) openPublicly(ctx context.Context, address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	for _, ip := range here() {
		if at := net.JoinHostPort(ip.String(), port); public(ip) && opens(ctx, at) == nil {
			return at + " is open"
		}
	}
	return ""
}

// shared are the addresses of providers' own networks (RFC 6598), which nobody reaches from outside.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// public says that an address is reached from anywhere.
func public(ip netip.Addr) bool {
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && !shared.Contains(ip)
}

// checkReady repeats what processes say of themselves.
func checkReady(_ context.Context, e *exam) {
	for _, p := range e.processes {
		if len(p.ready) == 0 {
			continue
		}
		fails := 0
		for _, line := range p.ready {
			if why, bad := strings.CutPrefix(line, "FAIL "); bad {
				fails++
				e.found("not-ready", p.where(), "%s", strings.TrimSpace(why))
			}
		}
		if fails == 0 {
			e.say("not-ready", p.where(), false, "it is ready")
		}
		if p.is("hub") {
			e.hubsDoors(p)
		}
	}
}

// hubsDoors repeats what a hub says of doors that do not hold what it has.
func (e *exam) hubsDoors(h *process) {
	var behind []string
	for _, line := range h.ready {
		if what, noted := strings.CutPrefix(line, "note door "); noted {
			behind = append(behind, what)
		}
	}
	e.say("hub-doors", h.where(), len(behind) > 0, "doors that do not hold its latest revision: %d%s", len(behind), listed(behind))
}

// checkSideDoors asks shims and engines without a context of a door.
func checkSideDoors(ctx context.Context, e *exam) {
	var shims []workerLine
	for _, d := range e.of("door", "epp") {
		if d.fleet == nil {
			continue
		}
		for _, w := range d.fleet.Workers {
			known := slices.ContainsFunc(shims, func(x workerLine) bool { return x.Address == w.Address })
			if w.Version != "" && !known && (d.here || !onLoopback(w.Address)) { // of one without a shim nothing is promised
				shims = append(shims, w)
			}
		}
	}
	together(shims, func(w workerLine) {
		e.knockShim(ctx, w.Name, w.Address)
		e.knockBeside(ctx, w.Name, w.Address)
	})
	for _, at := range e.Engines {
		e.knockEngine(ctx, "engine "+Public(at), at)
	}
	for _, w := range e.of("worker") {
		if at := w.flag("attach"); at != "" && !(onLoopback(at) && !w.here) {
			e.knockEngine(ctx, w.where(), at)
		}
	}
}

// knockShim: the worker must not serve who has no context.
func (e *exam) knockShim(ctx context.Context, name, address string) {
	a, err := send(ctx, address, http.MethodPost, "/v1/chat/completions", http.Header{"Content-Type": {"application/json"}},
		strings.NewReader(`{"model":"spokegate-doctor","max_tokens":1,"messages":[{"role":"user","content":"."}]}`))
	where := "worker " + name
	if err != nil { // nobody listens, which is found elsewhere; or it wants a certificate
		return
	}
	refused := a.status == http.StatusUnauthorized || a.status == http.StatusForbidden || a.status == http.StatusBadRequest && a.tls == nil && strings.Contains(string(a.body), "HTTPS")
	e.say("shim-open", where, !refused && a.status < 500, "without a context %s answers %d", address, a.status)
}

// enginePorts are those that engines take by default.
var enginePorts = []string{"8000", "30000"}

// knockBeside tries whether an engine is open beside its shim. On loopback anything may stand at those ports.
func (e *exam) knockBeside(ctx context.Context, name, address string) {
	h, own, err := net.SplitHostPort(address)
	if err != nil || onLoopback(address) {
		return
	}
	for _, port := range enginePorts {
		if port != own && opens(ctx, net.JoinHostPort(h, port)) == nil {
			e.knockEngine(ctx, "worker "+name, net.JoinHostPort(h, port))
		}
	}
}

// knockEngine: an engine must answer its shim alone.
func (e *exam) knockEngine(ctx context.Context, where, at string) {
	a, err := get(ctx, at, "/v1/models")
	answers := err == nil && a.status == http.StatusOK && strings.Contains(string(a.body), `"data"`)
	said := fmt.Sprintf("%s answers %d", Public(at), a.status)
	if err != nil {
		said = fmt.Sprintf("%s: %v", Public(at), err)
	}
	if onLoopback(at) {
		e.say("engine-on-loopback", where, answers, "%s", said)
		return
	}
	e.say("engine-open", where, answers, "%s", said)
}
