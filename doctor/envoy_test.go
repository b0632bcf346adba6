package doctor

import (
	"strings"
	"testing"
)

// TestOurOwnEnvoyIsFine: the dump is of the real Envoy under `spokegate up`.
func TestOurOwnEnvoyIsFine(t *testing.T) {
	r := examine(t, Target{Admin: []string{serve(t, envoyPages(t, "ours.json", nil))}})
	wantIDs(t, r)
	if r.Verdict != OK || r.Status() != 0 || len(r.Findings) < 25 {
		t.Errorf("verdict %s of %d findings", r.Verdict, len(r.Findings))
	}
}

// TestEveryMistakeOfAGateway: the dump is of the real Envoy with testdata/bad.yaml.
func TestEveryMistakeOfAGateway(t *testing.T) {
	p := envoyPages(t, "bad.json", nil)
	p["/server_info"] = map[string]string{"version": "abcd/1.37.0/Clean/RELEASE/BoringSSL"}
	p["/stats"] = map[string]any{"stats": []any{
		map[string]any{"name": "http.clients.ext_proc.meter.failure_mode_allowed", "value": 3},
		map[string]any{"name": "cluster.meter.upstream_rq_pending_overflow", "value": 4}}}
	r := examine(t, Target{Admin: []string{serve(t, p)}})
	wantIDs(t, r, "envoy-version", "envoy-admin-open", "envoy-body-buffer", "envoy-body-partial", "envoy-breakers-services", "envoy-buffer",
		"envoy-client-headers", "envoy-deaf", "envoy-fails-open", "envoy-no-admission", "envoy-order", "envoy-route-timeout", "envoy-two-streams",
		"envoy-admission-timeout", "envoy-breakers-workers", "envoy-connections", "envoy-fallback", "envoy-idle-timeout", "envoy-no-log",
		"envoy-no-pings", "envoy-overload", "envoy-processor-timeout", "clients-plain", "envoy-no-guard", "envoy-no-retries", "envoy-unmetered", "envoy-overflow")
	if f := find(r, "envoy-breakers-services"); f == nil || f.Saw != "clusters of admission, meters, pickers and log that are bounded: 3: door: max_requests 1024; "+
		"meter: max_requests 1024; picker: max_requests 1024" {
		t.Errorf("%+v", f)
	}
	if r.Status() != 2 {
		t.Errorf("exit status %d", r.Status())
	}
}

// TestOneMistakeInOurOwn changes one value of a good configuration each time, and wants that one found.
func TestOneMistakeInOurOwn(t *testing.T) {
	for name, c := range map[string]struct {
		set   func(m map[string]any) // called for every object of the dump
		wants []string
	}{
		"fails open": {func(m map[string]any) {
			if m["stat_prefix"] == "full" {
				m["failure_mode_allow"] = true
			}
		}, []string{"envoy-fails-open"}},
		"no patience, by gRPC": {func(m map[string]any) {
			if m["stat_prefix"] == "full" {
				delete(m, "http_service")
				m["grpc_service"] = map[string]any{"envoy_grpc": map[string]any{"cluster_name": "spokegate-door"}}
			}
		}, []string{"envoy-admission-timeout"}},
		"no patience, by HTTP": {func(m map[string]any) {
			if m["stat_prefix"] == "full" {
				delete(m, "grpc_service")
				m["http_service"] = map[string]any{"server_uri": map[string]any{"uri": "http://x", "cluster": "spokegate-door", "timeout": "0.500s"}}
			}
		}, []string{"envoy-admission-timeout"}},
		"breakers of admission, by HTTP": {func(m map[string]any) {
			if m["stat_prefix"] == "full" {
				delete(m, "grpc_service")
				m["http_service"] = map[string]any{"server_uri": map[string]any{"uri": "http://x", "cluster": "http-only", "timeout": "5s"}}
			}
			if m["name"] == "spokegate-door" && m["circuit_breakers"] != nil {
				delete(m, "circuit_breakers")
				m["name"] = "http-only"
			}
		}, []string{"envoy-breakers-services"}},
		"small body": {func(m map[string]any) {
			if b, ok := m["with_request_body"].(map[string]any); ok {
				b["max_request_bytes"] = 1 << 20
			}
		}, []string{"envoy-body-buffer"}},
		"no body": {func(m map[string]any) { delete(m, "with_request_body") }, []string{"envoy-body-unseen"}},
		"breakers of the meter": {func(m map[string]any) {
			if m["name"] == "spokegate-meter" {
				delete(m, "circuit_breakers")
			}
		}, []string{"envoy-breakers-services"}},
		"breakers of workers": {func(m map[string]any) {
			if m["name"] == "endpoint/demo" {
				m["circuit_breakers"] = map[string]any{"thresholds": []any{map[string]any{"max_connections": 100, "max_requests": 1 << 20, "max_pending_requests": 1 << 20}}}
			}
		}, []string{"envoy-breakers-workers"}},
		"the default timeout": {func(m map[string]any) {
			if m["cluster_header"] != nil {
				delete(m, "timeout")
			}
		}, []string{"envoy-route-timeout"}},
		"no early removal": {func(m map[string]any) { delete(m, "early_header_mutation_extensions") }, []string{"envoy-client-headers"}},
		"an open fallback": {func(m map[string]any) {
			if m["fallback_policy"] == "NO_FALLBACK" || m["subset_selectors"] != nil {
				m["fallback_policy"] = "ANY_ENDPOINT"
			}
		}, []string{"envoy-fallback"}},
		"an open admin page": {func(m map[string]any) {
			if a, ok := m["admin"].(map[string]any); ok {
				a["address"].(map[string]any)["socket_address"].(map[string]any)["address"] = "10.1.2.3"
			}
		}, []string{"envoy-admin-open"}},
		"no pings to the meter": {func(m map[string]any) { delete(m, "connection_keepalive") }, []string{"envoy-no-pings"}},
		"refused": {func(m map[string]any) {
			if m["active_state"] != nil {
				m["error_state"] = map[string]any{"details": "no such filter"}
			}
		}, []string{"envoy-refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			changed := func(dump map[string]any) {
				node{dump}.each(func(n node) {
					if m, ok := n.v.(map[string]any); ok {
						c.set(m)
					}
				})
			}
			wantIDs(t, examine(t, Target{Admin: []string{serve(t, envoyPages(t, "ours.json", changed))}}), c.wants...)
		})
	}
}

func TestABodyLimitOfItsOwn(t *testing.T) {
	r := examine(t, Target{Admin: []string{serve(t, envoyPages(t, "ours.json", nil))}, BodyLimit: 64 << 20})
	wantIDs(t, r, "envoy-body-buffer")
}

func TestWhatIsNoEnvoy(t *testing.T) {
	for name, p := range map[string]pages{"nothing": {}, "no JSON": {"/config_dump": "hello"}, "other JSON": {"/config_dump": `{"configs":[]}`}} {
		t.Run(name, func(t *testing.T) {
			wantIDs(t, examine(t, Target{Admin: []string{serve(t, p)}}), "envoy-unreachable")
		})
	}
	r := examine(t, Target{Admin: []string{"unix:/nowhere/admin.sock"}})
	wantIDs(t, r, "envoy-unreachable")
	if f := find(r, "envoy-unreachable"); f == nil || !strings.Contains(f.Saw, "no such file") || r.Status() != 1 {
		t.Errorf("%+v, exit status %d", f, r.Status())
	}
}

func TestVersions(t *testing.T) {
	for v, old := range map[string]bool{"1.40.0": false, "1.38.4": false, "1.38.3": true, "1.37.0": true, "2.0.0": false, "": true, "1.41.0-dev": false} {
		if got, _ := tooOld(v); got != old {
			t.Errorf("%q: too old: %v", v, got)
		}
	}
}

// TestEnvoyGatewayIsAsFineAsItCanBe: the dump is of Envoy Gateway's own Envoy, set up as `spokegate envoy print -for envoy-gateway` says.
// What is left is what it cannot express.
func TestEnvoyGatewayIsAsFineAsItCanBe(t *testing.T) {
	r := examine(t, Target{Admin: []string{serve(t, envoyPages(t, "envoy-gateway.json", nil))}})
	wantIDs(t, r, "envoy-fallback", "envoy-overload", "envoy-no-guard", "clients-plain")
	// One route that turns admission on no more is found among those that have it.
	r = examine(t, Target{Admin: []string{serve(t, envoyPages(t, "envoy-gateway.json", func(dump map[string]any) {
		done := false
		node{dump}.each(func(n node) {
			m, ok := n.v.(map[string]any)
			if per, has := m["typed_per_filter_config"].(map[string]any); ok && has && !done {
				for name := range per {
					if strings.Contains(name, "ext_authz") {
						delete(per, name)
						done = true
					}
				}
			}
		})
	}))}})
	if f := find(r, "envoy-no-admission"); f == nil || !strings.HasPrefix(f.Saw, "1 routes lead past admission") {
		t.Errorf("%+v in %q", f, ids(r))
	}
}
