package envoy

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// bulk is a request with a body that is asked about over HTTP.
func (r *rig) bulk(t *testing.T, pick string, headers ...string) answer {
	t.Helper()
	if pick != "" {
		headers = append(headers, "x-test-pick", pick)
	}
	return r.do(t, "POST", "/v1/chat/completions", strings.NewReader(large), headers...)
}

var large = strings.Repeat("x", 20_000)

// says: what becomes of each kind of answer, also of those that admission never gives.
func (r *rig) says(t *testing.T) {
	for _, c := range []struct {
		said   string
		status int
		code   string // of the body; "said": as it was given
	}{
		{"401", 401, "said"}, {"404", 404, "said"}, {"429", 429, "said"}, {"413", 413, "said"},
		{"460", 200, "said"}, {"463", 503, "said"},
		{"500", 503, "unavailable"}, {"503", 503, "unavailable"}, {"599", 503, "unavailable"},
		{"panic", 503, "unavailable"}, // and so is a connection that breaks
		{"nothing", 403, "forbidden"}, // a handler that has forgotten to answer, which is 200 to net/http
	} {
		t.Run(c.said, func(t *testing.T) {
			a := r.bulk(t, r.list("a"), "x-test-says", c.said)
			if c.code == "said" {
				if a.body != `{"error":{"code":"said"}}` || a.header.Get("content-type") != "application/json" || a.header.Get("retry-after") != "1" {
					t.Errorf("got %q %v", a.body, a.header)
				}
			} else {
				a.want(t, c.status, c.code)
			}
			if a.status != c.status {
				t.Errorf("status %d, want %d", a.status, c.status)
			}
			if a.header.Get("x-unheard") != "" {
				t.Error("the client hears what is not for it")
			}
			if e := r.logged(t, a.id); e.Response.ResponseCode.GetValue() != uint32(c.status) {
				t.Errorf("logged %v", e.Response)
			}
			r.nobodyAsked(t, a)
		})
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} { // the statuses that stand for others, in both shapes
		if a := r.do(t, "POST", path, strings.NewReader(large), "x-test-says", "463"); a.status != 503 || a.body != `{"error":{"code":"said"}}` {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// told: what admission tells a client stands in place of what a worker says under these names.
func (r *rig) told(t *testing.T) {
	r.workers["a"].answers(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range ToldHeaders {
			w.Header().Set(name, "forged")
		}
		io.WriteString(w, "served by a")
	})
	for _, ask := range []func(*testing.T, string, ...string) answer{r.post, r.bulk} {
		r.toldBy(t, ask)
	}
}

func (r *rig) toldBy(t *testing.T, ask func(*testing.T, string, ...string) answer) {
	t.Helper()
	a := ask(t, r.list("a"))
	a.served(t, "a")
	for _, name := range ToldHeaders {
		var want []string
		switch name {
		case "x-ratelimit-limit-requests":
			want = []string{"7"}
		case ExplainHeader:
			want = []string{"because"}
		}
		if got := a.header.Values(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if a.header.Get("x-unheard") != "" {
		t.Error("the client hears what is not for it")
	}
	got, _ := r.workers["a"].got.get(a.id)
	for _, name := range []string{"x-unheard", ExplainHeader, "x-ratelimit-limit-requests", DestinationKey, CheckKey, ClientAddressHeader} {
		if v := got[0].Header.Get(name); v != "" {
			t.Errorf("the worker hears %s: %s", name, v)
		}
	}
}

// odd: what an HTTP server refuses by itself, or reads in ways of its own, and Envoy lets pass.
func (r *rig) odd(t *testing.T) {
	send := func(target, host string) answer {
		return r.raw(t, "POST "+target+" HTTP/1.1\r\nhost: "+host+"\r\nauthorization: Bearer good\r\nx-test-says: 401\r\ncontent-length: 20000\r\n\r\n"+large)
	}
	for _, host := range []string{"user@host", "@"} {
		a := send("/v1/chat/completions", host)
		a.want(t, 400, "invalid_request")
		r.nobodyAsked(t, a)
	}
	for _, target := range []string{"/v1/%zz", "/v1/%", "/?%zz", "/?/", "//", "/a?b?c", "/a%20b", "/%ff", "/a;b", "/:80", "/" + strings.Repeat("a", 20_000)} {
		a := send(target, "x")
		if seen := r.services.authz.checks.await(t, a.id, two[check]); a.status != 401 || seen[0].path != target || seen[1].path != target {
			t.Errorf("%s: %d, seen as %q", target, a.status, seen[1].path)
		}
	}
}

func two[T any](got []T) bool { return len(got) == 2 }

// large: a request with a large body is admitted as one with a small body, and what Envoy and a client may say of it does not differ.
func (r *rig) large(t *testing.T) {
	h := []string{RequestIDHeader, "mine", ContextHeader, "forged", EndpointHeader, "forged", ClientAddressHeader, "192.0.2.66", DestinationKey, r.list("b"),
		ExplainHeader, "please", "x-api-key", "k", "content-encoding", "gzip", "x-session-id", "s", "cookie", "c=1", "x-envoy-max-retries", "9"}
	small, bulk := r.post(t, r.list("a"), h...), r.bulk(t, r.list("a"), h...)
	small.served(t, "a")
	bulk.served(t, "a")
	by := r.services.authz.checks
	one, other := by.await(t, small.id, some[check])[0], by.await(t, bulk.id, two[check])[1]
	for _, name := range append(slices.Clone(CheckHeaders), "authorization", "cookie", DestinationKey, ContextHeader, EndpointHeader) {
		was, is := one.headers[name], other.headers[name]
		if name == RequestIDHeader && was == small.id {
			was = bulk.id
		}
		if name == "cookie" {
			was = "" // nobody reads it
		}
		if was != is {
			t.Errorf("%s: %q in a check over gRPC, %q over HTTP", name, was, is)
		}
	}
	if one.path != other.path || one.source != other.source || string(other.body) != large || other.headers["x-forwarded-for"] != "" {
		t.Errorf("over gRPC from %s to %s, over HTTP from %s to %s", one.source, one.path, other.source, other.path)
	}
	got, _ := r.workers["a"].got.get(bulk.id)
	if h := got[0].Header; h.Get(ContextHeader) != "signed" || h.Get(EndpointHeader) != "" || h.Get(DestinationKey) != "" || h.Get(AttemptHeader) != "1" {
		t.Errorf("the worker got %v", h)
	}
	for name, c := range map[string]struct {
		headers []string
		status  int
		code    string
	}{
		"no context":       {[]string{"x-test-context", "-"}, 403, "forbidden"},
		"no endpoint":      {[]string{"x-test-endpoint", "-"}, 503, "unavailable"},
		"unknown endpoint": {[]string{"x-test-endpoint", "who"}, 503, "unavailable"},
	} {
		a := r.bulk(t, r.list("a"), c.headers...)
		t.Run(name, func(t *testing.T) { a.want(t, c.status, c.code) })
		r.nobodyAsked(t, a)
	}
	t.Run("the next of the list", func(t *testing.T) {
		r.workers["a"].answers(t, refuses)
		r.bulk(t, r.list("a", "b"), "x-test-retries", "1").served(t, "b")
	})
}
