package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// checkGateways judges the configuration that each Envoy runs with.
func checkGateways(_ context.Context, e *exam) {
	for _, p := range e.of("door") {
		if admin := p.flag("admin"); admin != "" && !p.here && onLoopback(admin) {
			e.found("envoy-unseen", p.where(), "its Envoy's admin page is at %s of another machine", admin)
		}
	}
	for _, g := range e.gateways {
		if g.err != nil {
			e.found("envoy-unreachable", g.where(), "%v", g.err)
			continue
		}
		e.judge(g)
	}
}

// bodyLimit is what a gateway must let through.
func (e *exam) bodyLimit(g *gateway) float64 {
	if g.door != nil {
		return node{g.door.flag("body-limit")}.number(float64(e.BodyLimit))
	}
	return float64(e.BodyLimit)
}

func (e *exam) judge(g *gateway) {
	old, why := tooOld(g.version)
	e.say("envoy-version", g.where(), old, "Envoy %s%s", g.version, why)
	e.say("envoy-refused", g.where(), len(g.refused) > 0, "%d parts of its configuration were refused%s", len(g.refused), listed(g.refused))
	admin := addressOf(g.bootstrap.at("admin", "address"))
	e.say("envoy-admin-open", g.where(), !onLoopback(admin), "it listens at %s", admin)
	e.judgeOverload(g)
	serving := 0
	for _, l := range g.listeners {
		if l.serves() {
			serving++
			e.judgeListener(g, l)
		}
	}
	if serving == 0 {
		e.found("envoy-no-admission", g.where(), "of %d listeners none asks for admission", len(g.listeners))
		return
	}
	e.judgeBreakers(g)
	e.judgeClusters(g)
}

// tooOld: releases before 1.38.4 have ways around admission, and 1.37.0 adds headers that should have been replaced.
func tooOld(version string) (bool, string) {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n != 3 {
		return true, ", which is no version that is known"
	}
	return major*1_000_000+minor*1000+patch < 1_038_004, ""
}

func (e *exam) judgeOverload(g *gateway) {
	heap, connections := false, false
	for _, m := range g.bootstrap.at("overload_manager", "resource_monitors").list() {
		heap = heap || m.at("typed_config").isType("FixedHeapConfig") || m.at("typed_config").isType("CgroupMemoryConfig")
		connections = connections || m.at("typed_config").isType("DownstreamConnectionsConfig")
	}
	e.say("envoy-overload", g.where(), !heap, "memory is %s", watched(heap))
	e.say("envoy-connections", g.where(), !connections, "the number of clients' connections is %s", watched(connections))
}

func watched(yes bool) string {
	if yes {
		return "watched"
	}
	return "not watched"
}

func (e *exam) judgeListener(g *gateway, l listener) {
	where := g.where() + " listener " + l.name
	e.judgeAdmission(g, l, where)
	e.judgeBody(g, l, where)
	e.judgeProcessors(g, l, where)
	e.judgeHeaders(l, where)
	e.judgeRoutes(l, where)
	e.say("clients-plain", where, !l.tls && !onLoopback(l.address), "clients come to %s, %s", l.address, map[bool]string{true: "with TLS", false: "without TLS"}[l.tls])
}

// judgeAdmission looks for requests that get past it.
func (e *exam) judgeAdmission(g *gateway, l listener, where string) {
	asks := l.all(extAuthz)
	if len(asks) == 0 {
		e.found("envoy-no-admission", where, "it asks a picker, and nobody for admission")
		return
	}
	open := ""
	for _, f := range asks {
		if f.conf.at("failure_mode_allow").yes() {
			open = f.name
		}
	}
	e.say("envoy-fails-open", where, open != "", "when admission does not answer, requests %s", map[bool]string{true: "pass: " + open, false: "are refused"}[open != ""])
	e.say("envoy-order", where, l.index(extProc) >= 0 && l.index(extProc) < l.index(extAuthz), "filters: %s", l.chain())
	around := l.unadmitted(asks)
	e.say("envoy-no-admission", where, len(around) > 0, "%d routes lead past admission%s", len(around), listed(around))
	guard := l.index(rbac) > l.index(extAuthz)
	e.say("envoy-no-guard", where, !guard, "what admission has not vouched for is %s", map[bool]string{true: "stopped by RBAC", false: "not stopped by another filter"}[guard])
	short := ""
	for _, f := range asks {
		if d := patienceOf(f.conf); d > 0 && d < time.Second {
			short = fmt.Sprintf("%s after %v", f.name, d)
		}
	}
	e.say("envoy-admission-timeout", where, short != "", "admission is given up: %s", orElse(short, "after a second at the earliest"))
}

// chain names the filters in their order.
func (l listener) chain() string {
	var names []string
	for _, f := range l.filters {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// modelRoutes are those that lead to workers: all, unless a gateway turns admission or picking on by the route alone.
func (l listener) modelRoutes() (list []node) {
	asks := func(f filter) bool { return f.conf.isType(extAuthz) || f.conf.isType(extProc) }
	byRoute := slices.ContainsFunc(l.filters, func(f filter) bool { return f.off && asks(f) })
	always := slices.ContainsFunc(l.filters, func(f filter) bool { return !f.off && f.conf.isType(extAuthz) })
	if !byRoute || always {
		return l.routes
	}
	for _, r := range l.routes {
		for _, f := range l.filters {
			if f.off && asks(f) && perRoute(r, f.name).there() {
				list = append(list, r)
				break
			}
		}
	}
	return list
}

// perRoute is what a route, or its host, says of a filter.
func perRoute(r node, name string) node {
	if n := r.at("typed_per_filter_config", name); n.there() {
		return n
	}
	return r.at("host", "typed_per_filter_config", name)
}

// unadmitted names the routes that no admission filter holds for.
func (l listener) unadmitted(asks []filter) (names []string) {
	for _, r := range l.modelRoutes() {
		held := slices.ContainsFunc(asks, func(f filter) bool {
			said := perRoute(r, f.name)
			return (!f.off || said.there()) && !said.at("disabled").yes()
		})
		if !held {
			names = append(names, orElse(r.at("name").text(), "one without a name"))
		}
	}
	return names
}

// judgeRoutes looks for what cuts a long answer.
func (e *exam) judgeRoutes(l listener, where string) {
	cut, idle, once := []string{}, []string{}, []string{}
	whole := l.manager.at("stream_idle_timeout").duration(5 * time.Minute)
	for _, r := range l.modelRoutes() {
		name, action := orElse(r.at("name").text(), "one without a name"), r.at("route")
		if t := action.at("timeout").duration(15 * time.Second); t > 0 && t < 10*time.Minute {
			cut = append(cut, fmt.Sprintf("%s after %v", name, t))
		}
		if t := action.at("max_stream_duration", "max_stream_duration").duration(0); t > 0 && t < 10*time.Minute {
			cut = append(cut, fmt.Sprintf("%s after %v", name, t))
		}
		if t := action.at("idle_timeout").duration(whole); t > 0 && t < 2*time.Minute {
			idle = append(idle, fmt.Sprintf("%s after %v", name, t))
		}
		if !action.at("retry_policy").there() && !r.at("host", "retry_policy").there() {
			once = append(once, name)
		}
	}
	if t := l.manager.at("common_http_protocol_options", "max_stream_duration").duration(0); t > 0 && t < 10*time.Minute {
		cut = append(cut, fmt.Sprintf("all after %v", t))
	}
	e.say("envoy-route-timeout", where, len(cut) > 0, "routes that end answers: %d%s", len(cut), listed(cut))
	e.say("envoy-idle-timeout", where, len(idle) > 0, "routes that end requests on which nothing moves: %d%s", len(idle), listed(idle))
	e.say("envoy-no-retries", where, len(once) > 0, "routes that try one worker alone: %d%s", len(once), listed(once))
}

// judgeClusters looks at how workers are chosen.
func (e *exam) judgeClusters(g *gateway) {
	open, deaf := []string{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(g.clusters)) {
		for _, p := range g.clusters[name].at("load_balancing_policy", "policies").list() {
			c := p.at("typed_extension_config", "typed_config")
			if !c.isType("OverrideHost") {
				continue
			}
			if !closed(c.at("fallback_policy")) {
				open = append(open, name)
			}
			if why := g.deaf(c); why != "" {
				deaf = append(deaf, name+": "+why)
			}
		}
	}
	e.say("envoy-fallback", g.where(), len(open) > 0, "endpoints that take any worker when none is named: %d%s", len(open), listed(open))
	e.say("envoy-deaf", g.where(), len(deaf) > 0, "endpoints that do not hear which worker was picked: %d%s", len(deaf), listed(deaf))
}

// closed says that a fallback finds nobody: a subset that no host is in, without a fallback of its own.
func closed(fallback node) bool {
	for _, p := range fallback.at("policies").list() {
		c := p.at("typed_extension_config", "typed_config")
		return c.isType("subset.v3.Subset") && orElse(c.at("fallback_policy").text(), "NO_FALLBACK") == "NO_FALLBACK"
	}
	return false
}

// deaf says why a pick by metadata does not arrive: Envoy takes none from a picker unless its namespace is named.
func (g *gateway) deaf(override node) string {
	for _, s := range override.at("override_host_sources").list() {
		if s.at("header").text() != "" {
			return ""
		}
		if key := s.at("metadata", "key").text(); key != "envoy.lb" {
			return ""
		}
	}
	for _, l := range g.listeners {
		for _, f := range l.all(extProc) {
			if slices.Contains(f.conf.at("metadata_options", "receiving_namespaces", "untyped").texts(), "envoy.lb") {
				return ""
			}
		}
	}
	return "no picker's metadata_options.receiving_namespaces names envoy.lb"
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// listed shows the first few of a list.
func listed(list []string) string {
	const most = 4
	switch {
	case len(list) == 0:
		return ""
	case len(list) > most:
		return fmt.Sprintf(": %s, and %d more", strings.Join(list[:most], "; "), len(list)-most)
	}
	return ": " + strings.Join(list, "; ")
}
