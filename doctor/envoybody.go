package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// judgeBody looks for what keeps a body below the limit from being admitted.
func (e *exam) judgeBody(g *gateway, l listener, where string) {
	limit, most, partial := e.bodyLimit(g), 0.0, false
	for _, f := range l.all(extAuthz) {
		b := f.conf.at("with_request_body")
		most = max(most, b.at("max_request_bytes").number(0))
		partial = partial || b.at("allow_partial_message").yes()
	}
	if l.index(extAuthz) >= 0 {
		e.say("envoy-body-unseen", where, most == 0, "admission is sent %s", map[bool]string{true: "no body", false: "the body"}[most == 0])
		e.say("envoy-body-buffer", where, most > 0 && most < limit, "admission takes bodies of %.0f bytes; %.0f are allowed", most, limit)
		e.say("envoy-body-partial", where, partial, "bodies go to admission %s", map[bool]string{true: "in part", false: "whole"}[partial])
	}
	buffer := l.conf.at("per_connection_buffer_limit_bytes").number(1 << 20)
	small := ""
	for _, f := range l.filters {
		switch {
		case f.conf.isType("buffer.v3.Buffer"):
			if n := f.conf.at("max_request_bytes").number(0); n < limit {
				small = fmt.Sprintf("%s holds %.0f bytes", f.name, n)
			}
		case f.conf.isType(extProc) && strings.HasPrefix(f.conf.at("processing_mode", "request_body_mode").text(), "BUFFERED") && max(buffer, most) < limit:
			small = fmt.Sprintf("%s holds %.0f bytes, the listener's per_connection_buffer_limit_bytes", f.name, max(buffer, most))
		}
	}
	e.say("envoy-buffer", where, small != "", "%s; %.0f are allowed", orElse(small, "no other filter holds whole bodies, or it holds enough"), limit)
}

// judgeProcessors looks at meters and pickers.
func (e *exam) judgeProcessors(g *gateway, l listener, where string) {
	streaming, hang, short := []string{}, []string{}, []string{}
	for _, f := range l.all(extProc) {
		mode := f.conf.at("processing_mode")
		observes := f.conf.at("observability_mode").yes()
		whole := strings.HasPrefix(mode.at("request_body_mode").text(), "FULL_DUPLEX") || strings.HasPrefix(mode.at("response_body_mode").text(), "FULL_DUPLEX")
		if !observes && (streams(mode.at("request_body_mode")) || streams(mode.at("response_body_mode"))) {
			streaming = append(streaming, f.name)
		}
		if (observes || whole) && !g.pinged(clusterOf(f.conf)) {
			hang = append(hang, f.name)
		}
		if d := f.conf.at("message_timeout").duration(200 * time.Millisecond); !observes && !whole && d > 0 && d < time.Second {
			short = append(short, fmt.Sprintf("%s after %v", f.name, d))
		}
	}
	e.say("envoy-two-streams", where, len(streaming) > 1, "filters that stream bodies through: %d%s", len(streaming), listed(streaming))
	e.say("envoy-no-pings", where, len(hang) > 0, "meters and pickers that are not pinged: %d%s", len(hang), listed(hang))
	e.say("envoy-processor-timeout", where, len(short) > 0, "meters and pickers that are given up early: %d%s", len(short), listed(short))
	logs := slices.ContainsFunc(l.manager.at("access_log").list(), func(a node) bool { return a.at("typed_config").isType("HttpGrpcAccessLogConfig") })
	e.say("envoy-no-log", where, !logs, "how requests end is %s", map[bool]string{true: "told by gRPC", false: "not told"}[logs])
}

func streams(mode node) bool {
	return mode.text() == "STREAMED" || mode.text() == "FULL_DUPLEX_STREAMED"
}

// pinged says that a cluster's connections are cut off when nobody answers on them.
func (g *gateway) pinged(cluster string) bool {
	found := false
	g.clusters[cluster].each(func(n node) {
		found = found || n.at("connection_keepalive", "interval").there()
	})
	return found
}

// ownedSamples are headers by which a client would be taken for somebody else, or choose its worker.
var ownedSamples = []string{"x-spokegate-context", "x-spokegate-endpoint", "x-gateway-destination-endpoint", "x-gateway-destination-endpoint-subset",
	"x-gateway-inference-objective", "x-data-parallel-rank", "x-prefiller-host-port", "x-llm-d-model"}

// judgeHeaders asks whether clients can send headers that are the door's.
func (e *exam) judgeHeaders(l listener, where string) {
	var removals []node
	for _, x := range l.manager.at("early_header_mutation_extensions").list() {
		removals = append(removals, x.at("typed_config", "mutations").list()...)
	}
	var pass []string
	for _, name := range ownedSamples {
		if !slices.ContainsFunc(removals, func(m node) bool { return removes(m, name) }) {
			pass = append(pass, name)
		}
	}
	e.say("envoy-client-headers", where, len(pass) > 0, "headers of the door's that a client can send: %d of %d tried%s", len(pass), len(ownedSamples), listed(pass))
}

// removes says that a mutation takes a header away.
func removes(m node, name string) bool {
	if strings.EqualFold(m.at("remove").text(), name) {
		return true
	}
	k := m.at("remove_on_match", "key_matcher")
	if r := k.at("safe_regex", "regex").text(); r != "" {
		re, err := regexp.Compile("^(?:" + r + ")$")
		return err == nil && re.MatchString(name)
	}
	exact, prefix, suffix, contains := k.at("exact").text(), k.at("prefix").text(), k.at("suffix").text(), k.at("contains").text()
	return exact == name || prefix != "" && strings.HasPrefix(name, prefix) || suffix != "" && strings.HasSuffix(name, suffix) ||
		contains != "" && strings.Contains(name, contains)
}

// defaultBreaker is what Envoy bounds a cluster to when nobody says otherwise.
const defaultBreaker = 1024

// judgeBreakers looks for clusters that turn requests away above a number that nobody chose.
func (e *exam) judgeBreakers(g *gateway) {
	services := map[string]bool{}
	for _, l := range g.listeners {
		l.manager.each(func(n node) {
			if name := clusterOf(n); name != "" {
				services[name] = true
			}
			if name := n.at("common_config", "grpc_service", "envoy_grpc", "cluster_name").text(); name != "" {
				services[name] = true
			}
		})
	}
	lowServices, lowWorkers := []string{}, []string{}
	workers := g.workerClusters()
	for _, name := range slices.Sorted(maps.Keys(g.clusters)) {
		why := breaker(g.clusters[name])
		switch {
		case why == "":
		case services[name]:
			lowServices = append(lowServices, name+": "+why)
		case workers[name]:
			lowWorkers = append(lowWorkers, name+": "+why)
		}
	}
	e.say("envoy-breakers-services", g.where(), len(lowServices) > 0, "clusters of admission, meters, pickers and log that are bounded: %d%s", len(lowServices), listed(lowServices))
	e.say("envoy-breakers-workers", g.where(), len(lowWorkers) > 0, "clusters of workers that are bounded: %d%s", len(lowWorkers), listed(lowWorkers))
}

// breaker says how low a cluster is bounded; empty: not so low.
func breaker(c node) string {
	if !c.there() {
		return ""
	}
	var normal node // of the default priority
	for _, t := range c.at("circuit_breakers", "thresholds").list() {
		if p := t.at("priority").text(); p == "" || p == "DEFAULT" {
			normal = t
		}
	}
	for _, name := range []string{"max_requests", "max_connections", "max_pending_requests"} {
		if n := normal.at(name).number(defaultBreaker); n <= defaultBreaker {
			return fmt.Sprintf("%s %.0f", name, n)
		}
	}
	return ""
}

// workerClusters are those that routes lead to, or a header may name.
func (g *gateway) workerClusters() map[string]bool {
	out := map[string]bool{}
	for name, c := range g.clusters {
		for _, p := range c.at("load_balancing_policy", "policies").list() {
			if p.at("typed_extension_config", "typed_config").isType("OverrideHost") {
				out[name] = true
			}
		}
	}
	for _, l := range g.listeners {
		for _, r := range l.modelRoutes() {
			if name := r.at("route", "cluster").text(); name != "" {
				out[name] = true
			}
			for _, c := range r.at("route", "weighted_clusters", "clusters").list() {
				out[c.at("name").text()] = true
			}
		}
	}
	return out
}

// checkStats looks at what has gone wrong since Envoys started, and was told to nobody.
func checkStats(ctx context.Context, e *exam) {
	for _, g := range e.gateways {
		if g.err != nil {
			continue
		}
		a, err := get(ctx, g.admin, "/stats?format=json&filter=failure_mode_allowed%7Cupstream_rq_pending_overflow%7Cupstream_rq_active_overflow%7Cupstream_cx_overflow")
		stats, bad := parseNode(a.body)
		if err != nil || a.status != http.StatusOK || bad != nil {
			e.found("envoy-unreachable", g.where(), "/stats does not answer")
			continue
		}
		e.say("envoy-unmetered", g.where(), counted(stats, "failure_mode_allowed") > 0, "since it started %.0f requests or answers passed because nobody answered", counted(stats, "failure_mode_allowed"))
		e.say("envoy-overflow", g.where(), counted(stats, "overflow") > 0, "since it started circuit breakers stood in the way %.0f times", counted(stats, "overflow"))
	}
}

func counted(stats node, end string) (n float64) {
	for _, s := range stats.at("stats").list() {
		if strings.HasSuffix(s.at("name").text(), end) {
			n += s.at("value").number(0)
		}
	}
	return n
}
