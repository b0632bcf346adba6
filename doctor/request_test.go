package doctor

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
)

// TestTheKeyGoesToTheDoorAlone: who has another certificate than the door's own is not told the key.
func TestTheKeyGoesToTheDoorAlone(t *testing.T) {
	authority := mtlstest.New(t)
	door, other := authority.Issue(t, "door.test"), authority.Issue(t, "door.test")
	var heard atomic.Int32
	listen := func(cert, key string) string {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				heard.Add(1)
			}
			w.WriteHeader(http.StatusUnauthorized)
		}))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	try := func(at string) Report {
		p := &process{here: true, about: About{Role: "door", Name: "d", Flags: map[string]string{"listen": at, "tls-cert": door.Cert, "tls-key": door.Key}}}
		e := &exam{Target: Target{Key: "sk-secret"}, processes: []*process{p}}
		checkRequest(t.Context(), e)
		return e.report()
	}
	r := try(listen(other.Cert, other.Key))
	if f := find(r, "request-failed"); f == nil || !strings.Contains(f.Saw, "unknown authority") || heard.Load() != 0 {
		t.Errorf("%+v, and the key was told %d times", f, heard.Load())
	}
	r = try(listen(door.Cert, door.Key))
	if f := find(r, "request-failed"); f == nil || !strings.Contains(f.Saw, "answers 401") || heard.Load() != 1 {
		t.Errorf("%+v, and the key was told %d times", f, heard.Load())
	}
}

// TestCountersAndHubs: what processes have counted, and what a hub says of its doors.
func TestCountersAndHubs(t *testing.T) {
	worker := func(metrics string) string {
		return serve(t, pages{"/metrics": metrics, "/readyz": "ok   well\n", "/about": func() any {
			return About{Role: "worker", Name: "g1", Spoke: "north", Version: "v1", Folder: "/", At: time.Now(), Flags: map[string]string{"body-limit": "1"}}
		}})
	}
	wantIDs(t, examine(t, Target{Ops: []string{worker("process_max_fds 65536\nprocess_open_fds 20\nspokegate_usage_lost_total{reason=\"x\"} 0\n")}}))
	wantIDs(t, examine(t, Target{Ops: []string{worker("process_max_fds 1024\nprocess_open_fds 20\nspokegate_usage_lost_total{reason=\"x\"} 2\n" +
		"spokegate_usage_spool_bytes 1000000000\nspokegate_limits_fallback 1\n")}}), "files-few", "usage-lost", "spool-full", "limits-alone")
	hub := serve(t, pages{"/readyz": "ok   database: answers\nnote door north/d1 refuses revision 7: no team x\n", "/about": func() any {
		return About{Role: "hub", Name: "main", Version: "v1", Folder: "/", At: time.Now(), Flags: map[string]string{"push-listen": "127.0.0.1:1"}}
	}})
	r := examine(t, Target{Ops: []string{hub}})
	wantIDs(t, r, "hub-doors", "hub-closed")
	if f := find(r, "hub-doors"); f == nil || !strings.Contains(f.Saw, "north/d1 refuses revision 7") {
		t.Errorf("%+v", f)
	}
}

// TestOneProcessByTwoAddresses is one: its door must not seem to be two.
func TestOneProcessByTwoAddresses(t *testing.T) {
	at := serve(t, aDoor(nil))
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	r := examine(t, Target{Ops: []string{at, "localhost:" + port}})
	wantIDs(t, without(r, elsewhere))
}
