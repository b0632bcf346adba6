package envoy

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestLive runs every case through the real Envoy, with the pick on the admission's answer and with a picker in the chain.
func TestLive(t *testing.T) {
	for name, picker := range map[string]bool{"pick rides on ext_authz": false, "picker behind ext_proc": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each has an Envoy of its own, and mostly waits
			r := startRig(t, picker, func(d *Door) { d.BodyLimit = 8 << 20 })
			parts := map[string]func(*testing.T){
				"picking": r.picking, "headers": r.headers, "refusals": r.refusals, "bodies": r.bodies, "http1": r.http1,
				"http2": r.http2, "ends": r.ends, "notes": r.notes, "fleet": r.followsFleet, "own answers": r.ownAnswers,
				"says": r.says, "told": r.told, "odd": r.odd, "large": r.large,
			}
			if picker {
				parts["shed"] = r.shed
			}
			for name, f := range parts {
				t.Run(name, f)
			}
			if got := r.admin("/stats?filter=" + MeterMissedStat); got != MeterMissedStat+": 0\n" {
				t.Errorf("not all was metered: %q", got)
			}
		})
	}
}

func (r *rig) picking(t *testing.T) {
	for _, n := range []string{"b", "a", "c"} {
		r.post(t, r.list(n, "a", "b")).served(t, n)
	}
	t.Run("an address outside the endpoint is passed over", func(t *testing.T) {
		r.post(t, "127.0.0.1:9,"+r.list("b")).served(t, "b")
	})
	t.Run("no pick, no worker", func(t *testing.T) {
		a := r.post(t, "")
		a.want(t, 503, "unavailable")
		r.nobodyAsked(t, a)
	})
	t.Run("only addresses outside, no worker", func(t *testing.T) {
		a := r.post(t, "127.0.0.1:9,127.0.0.1:10")
		a.want(t, 503, "unavailable")
		r.nobodyAsked(t, a)
	})
	t.Run("the client's destination is not heard", func(t *testing.T) {
		a := r.post(t, "", DestinationKey, r.list("a"))
		a.want(t, 503, "unavailable")
		r.nobodyAsked(t, a)
	})
	for name, refuse := range map[string]http.HandlerFunc{"503": refuses, "reset": resets} {
		t.Run(name+", then the next of the list", func(t *testing.T) {
			r.workers["a"].answers(t, refuse)
			a := r.post(t, r.list("a", "b"))
			a.served(t, "b")
			got, _ := r.workers["b"].got.get(a.id)
			if n := got[0].Header.Get(AttemptHeader); n != "2" {
				t.Errorf("attempt %q, want 2", n)
			}
			e := r.logged(t, a.id)
			if p := e.CommonProperties; p.UpstreamRequestAttemptCount != 2 || served(p.Metadata.FilterMetadata) != r.workers["b"].addr {
				t.Errorf("logged %v", e)
			}
		})
	}
	t.Run("the list is tried once and nobody else", func(t *testing.T) {
		r.workers["a"].answers(t, refuses)
		a := r.post(t, r.list("a"))
		a.want(t, 503, "unavailable")
		for n, times := range map[string]int{"a": 1, "b": 0, "c": 0} {
			if got, _ := r.workers[n].got.get(a.id); len(got) != times {
				t.Errorf("%s was asked %d times, want %d", n, len(got), times)
			}
		}
		if !r.logged(t, a.id).CommonProperties.ResponseFlags.NoHealthyUpstream {
			t.Error("the log does not say UH")
		}
	})
}

func refuses(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(RefusedHeader, "draining")
	w.WriteHeader(503)
	io.WriteString(w, "the shim's own words")
}

func resets(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// TestLive's "refusals": what a shim says last is heard by the meter and the log, and its words by the client.
func (r *rig) refusals(t *testing.T) {
	r.workers["a"].answers(t, refuses)
	r.workers["b"].answers(t, refuses)
	a := r.post(t, r.list("a", "b"), "x-test-retries", "1")
	if a.status != 503 || a.body != "the shim's own words" {
		t.Fatalf("got %d %q", a.status, a.body)
	}
	if v, ok := a.header[http.CanonicalHeaderKey(RefusedHeader)]; ok {
		t.Errorf("the client sees %v", v)
	}
	m := r.services.meter.ended.await(t, a.id, some[metered])[0]
	if m.response[RefusedHeader] != "draining" || m.attributes[UpstreamAttribute] != r.workers["b"].addr {
		t.Errorf("the meter saw %v of %v", m.response, m.attributes)
	}
	e := r.logged(t, a.id)
	if got := e.CommonProperties.Metadata.FilterMetadata[OwnNamespace].GetFields()[RefusedHeader].GetStringValue(); got != "draining" {
		t.Errorf("the log says %q: %v", got, e)
	}
	if n := e.CommonProperties.UpstreamRequestAttemptCount; n != 2 {
		t.Errorf("%d attempts logged, want 2", n)
	}
	got, _ := r.workers["b"].got.get(a.id)
	if h := got[0].Header.Get(MaxRetriesHeader); h != "" {
		t.Errorf("%s: %s went upstream", MaxRetriesHeader, h)
	}
}

func (r *rig) headers(t *testing.T) {
	a := r.post(t, r.list("a"), RequestIDHeader, "mine", ContextHeader, "forged", EndpointHeader, "forged", "x-spokegate-team", "root",
		DestinationKey, r.list("b"), DestinationKey+"-subset", "x", "x-gateway-inference-objective", "x", "x-envoy-max-retries", "9",
		"x-envoy-upstream-rq-timeout-ms", "1", ExplainHeader, "please", ClientRequestIDHeader, "forged", "x-spokegate-explained", "x",
		"cookie", "c=1", RanksHeader, "x", RanksHeader+"2", "x", "x-api-key", "k", "accept-encoding", "gzip", "x-llm-d-x", "1", "x-data-parallel-host-port", "x", "x-prefiller-host-port", "x")
	a.served(t, "a")
	stripped := []string{RanksHeader + "2", "x-spokegate-team", "x-spokegate-explained", DestinationKey + "-subset", "x-gateway-inference-objective",
		"x-envoy-max-retries", "x-envoy-upstream-rq-timeout-ms", "x-llm-d-x", "x-data-parallel-host-port", "x-prefiller-host-port"}

	check := r.services.authz.checks.await(t, a.id, some[check])[0].headers
	absent(t, "ext_authz", check, append(stripped, RanksHeader, ContextHeader, EndpointHeader, DestinationKey)...)
	carries(t, "ext_authz", check, ClientRequestIDHeader, "mine", RequestIDHeader, a.id, ExplainHeader, "please",
		"authorization", "Bearer good", "x-api-key", "k", "cookie", "c=1")

	got, _ := r.workers["a"].got.get(a.id)
	worker := map[string]string{}
	for k := range got[0].Header {
		worker[http.CanonicalHeaderKey(k)] = got[0].Header.Get(k)
	}
	absent(t, "worker", worker, canonical(append(stripped, EndpointHeader, ExplainHeader, ClientRequestIDHeader, DestinationKey,
		"authorization", "x-api-key", "cookie", "accept-encoding")...)...)
	carries(t, "worker", worker, canonical(ContextHeader, "signed", RequestIDHeader, a.id, AttemptHeader, "1")...)
	if ranks := got[0].Header.Get(RanksHeader); (ranks == "told by the picker") != (r.door.PickerSocket != "") || r.door.PickerSocket == "" && ranks != "" {
		t.Errorf("the worker is told the ranks %q", ranks)
	}

	m := r.services.meter.ended.await(t, a.id, some[metered])[0]
	if diff := cmp.Diff(map[string]string{":status": "200", "content-type": "text/plain; charset=utf-8"}, m.response); diff != "" {
		t.Errorf("the meter is sent (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{IDAttribute: a.id, PathAttribute: "/v1/chat/completions", ClusterAttribute: ClusterName("large"),
		UpstreamAttribute: r.workers["a"].addr}, m.attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if string(m.body) != "served by a" || !m.end || m.more {
		t.Errorf("metered %q, end %v, more than needed %v", m.body, m.end, m.more)
	}

	client := map[string]string{}
	for k := range a.header {
		client[k] = a.header.Get(k)
	}
	absent(t, "client", client, canonical("x-spokegate-secret", "x-envoy-upstream-service-time", ContextHeader)...)
	carries(t, "client", client, canonical("x-ratelimit-limit-requests", "7", ExplainHeader, "because", RequestIDHeader, a.id)...)

	e := r.logged(t, a.id)
	if e.CommonProperties.UpstreamCluster != ClusterName("large") || served(e.CommonProperties.Metadata.FilterMetadata) != r.workers["a"].addr ||
		e.Response.ResponseCode.GetValue() != 200 || e.Response.ResponseBodyBytes != uint64(len(a.body)) || e.Request.RequestId != a.id {
		t.Errorf("logged %v", e)
	}
}

// ownAnswers: of what was refused the meter hears nothing, and of Envoy's own answers that no worker was asked.
func (r *rig) ownAnswers(t *testing.T) {
	denied := r.do(t, "POST", "/v1/chat/completions", strings.NewReader("{}"), "authorization", "Bearer bad")
	if denied.status != 401 {
		t.Fatalf("got %d %q", denied.status, denied.body)
	}
	r.notMetered(t, denied.id)
	r.notMetered(t, r.post(t, r.list("a"), "x-test-endpoint", "-").id)
	for name, a := range map[string]answer{
		"no worker": r.post(t, ""), "no such endpoint": r.post(t, r.list("a"), "x-test-endpoint", "nowhere"),
	} {
		a.want(t, 503, "unavailable")
		m := r.services.meter.ended.await(t, a.id, some[metered])[0]
		if m.attributes[UpstreamAttribute] != "" || m.response[":status"] != "503" {
			t.Errorf("%s: metered %+v", name, m)
		}
	}
}

// shed: a picker's own refusal arrives as it is.
func (r *rig) shed(t *testing.T) {
	a := r.post(t, r.list("a"), "x-test-shed", "1")
	if a.status != 429 || a.body != `{"error":{"code":"overloaded"}}` || a.header.Get("content-type") != "application/json" {
		t.Errorf("got %d %q %v", a.status, a.body, a.header)
	}
	r.nobodyAsked(t, a)
}

func (r *rig) logged(t *testing.T, id string) *logEntry {
	t.Helper()
	return r.services.log.entries.await(t, id, some[*logEntry])[0]
}

func (r *rig) nobodyAsked(t *testing.T, a answer) {
	t.Helper()
	for _, w := range r.workers {
		if got, _ := w.got.get(a.id); len(got) > 0 {
			t.Errorf("%s was asked", w.name)
		}
	}
}

func served(m map[string]*structpb.Struct) string {
	return m[LBNamespace].GetFields()[ServedKey].GetStringValue()
}

// canonical turns every header name into Go's form, and leaves values, which come second, alone.
func canonical(names ...string) []string {
	out := slices.Clone(names)
	for i := range out {
		out[i] = http.CanonicalHeaderKey(out[i])
	}
	return out
}

func absent(t *testing.T, who string, h map[string]string, names ...string) {
	t.Helper()
	for _, n := range names {
		if v, ok := h[n]; ok {
			t.Errorf("%s sees %s: %s", who, n, v)
		}
	}
}

func carries(t *testing.T, who string, h map[string]string, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := h[pairs[i]]; http.CanonicalHeaderKey(got) != http.CanonicalHeaderKey(pairs[i+1]) {
			t.Errorf("%s sees %s: %q, want %q", who, pairs[i], got, fmt.Sprint(pairs[i+1]))
		}
	}
}
