package worker

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
)

// listing is an engine that answers for its models as vLLM does.
type listing struct {
	Engine
	base *url.URL
}

func (l listing) Base() *url.URL               { return l.base }
func (l listing) Transport() http.RoundTripper { return http.DefaultTransport }

func TestAdaptersHaveAParent(t *testing.T) {
	status, body := 200, `{"object":"list","data":[{"id":"base","root":"/models/base","parent":null},
		{"id":"sql","root":"/adapters/sql","parent":"base"},{"id":"law","root":"/adapters/law","parent":"base"}]}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer s.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	names, err := Adapters(t.Context(), listing{base: u})
	if err != nil || !slices.Equal(names, []string{"sql", "law"}) {
		t.Errorf("%q, %v", names, err)
	}
	for _, bad := range []struct {
		status int
		body   string
	}{{404, ""}, {200, "<html>"}} {
		status, body = bad.status, bad.body
		if names, err := Adapters(t.Context(), listing{base: u}); err == nil || names != nil {
			t.Errorf("%d: %q", status, names)
		}
	}
}
