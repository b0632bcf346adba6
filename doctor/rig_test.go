package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// pages are what a process answers, by path. A scripted one stands for doors and Envoys in states that are hard to bring about;
// test/doctor_test.go looks at real ones.
type pages map[string]any

// serve answers them, and 404 for all else.
func serve(t *testing.T, p pages) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch v := p[r.URL.Path].(type) {
		case nil:
			http.NotFound(w, r)
		case int:
			w.WriteHeader(v)
		case string:
			fmt.Fprint(w, v)
		case func() any:
			_ = json.NewEncoder(w).Encode(v())
		default:
			_ = json.NewEncoder(w).Encode(v)
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// envoyPages are those of an Envoy that was asked for its configuration and has gone since.
func envoyPages(t *testing.T, file string, change func(dump map[string]any)) pages {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var dump map[string]any
	if err := json.Unmarshal(data, &dump); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(dump)
	}
	return pages{"/config_dump": dump, "/server_info": map[string]string{"version": "9e55/1.40.0/Clean/RELEASE/BoringSSL"},
		"/stats": map[string]any{"stats": []any{}}}
}

func examine(t *testing.T, target Target) Report {
	t.Helper()
	target.Patience = time.Minute
	return Examine(context.Background(), target)
}

// ids are what a report has found wrong, each once.
func ids(r Report) (list []string) {
	for _, f := range r.Findings {
		if f.Severity != OK {
			list = append(list, f.ID)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// wantIDs wants these findings and no others.
func wantIDs(t *testing.T, r Report, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := ids(r); !slices.Equal(got, want) {
		var text strings.Builder
		_ = r.Print(&text)
		t.Errorf("got %q\nwant %q\n%s", got, want, text.String())
	}
}

// find gives the finding of an id; nil: there is none that is bad.
func find(r Report, id string) *Finding {
	for i, f := range r.Findings {
		if f.ID == id && f.Severity != OK {
			return &r.Findings[i]
		}
	}
	return nil
}
