package main

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
)

func TestFleetIsShown(t *testing.T) {
	snap := snapshot(t)
	endpoint := snap.Endpoints()[0].Name
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := fleet.New()
	for _, w := range []fleet.Worker{
		{Name: "gpu-1", Endpoint: endpoint, Addr: "10.0.0.1:1", Engine: "vllm", Epoch: "7d2f09c1aa", BlockSize: 16, Ranks: 4, Role: fleet.RoleDecode, State: fleet.Ready, Joined: at.Add(-76 * time.Hour)},
		{Name: "gpu-2", Endpoint: endpoint, Addr: "10.0.0.2:1", Engine: "sim", State: fleet.Starting, Joined: at.Add(-80 * time.Second)},
		{Name: "gpu-3", Endpoint: "elsewhere", Addr: "10.0.0.3:1", Engine: "sim", State: fleet.Ready, Joined: at},
	} {
		if _, err := f.Join(w); err != nil {
			t.Fatal(err)
		}
	}
	f.Report("gpu-1", fleet.Status{Running: 3, At: at.Add(-time.Second), Degraded: []string{"kv-transfer: tcp", "seed"},
		Load: &fleet.Load{Running: 2, Waiting: 31, CacheUsedPermille: 712, Preemptions: 5}})
	f.Report("gpu-2", fleet.Status{Running: 1, Reason: "loading weights", At: at})
	f.Acked(map[string]uint64{endpoint: f.View().Version})
	st := newFleetStatus(f, snap, []epp.Index{
		{Endpoint: endpoint, Addr: "10.0.0.1:1", State: epp.Indexed},
		{Endpoint: endpoint, Addr: "10.0.0.2:1", State: epp.Degraded, Reason: "diverging: x"},
	})
	st.Door, st.At = "door-1", at
	var out strings.Builder
	if err := st.print(&out); err != nil {
		t.Fatal(err)
	}
	want := `WORKER  ENDPOINT   STATE            PICKED  RUNNING  WAITING  CACHE  ENGINE            BLOCK  INDEX       EPOCH     ADDRESS     JOINED  BEAT
gpu-1   demo       ready, degraded  yes     2        31       71%    vllm x4 (decode)  16     indexed     7d2f09c1  10.0.0.1:1  3d4h    1s
gpu-2   demo       starting         no      1        -        -      sim               -      degraded              10.0.0.2:1  1m20s   0s
gpu-3   elsewhere  ready            no      0        -        -      sim               -      predictive            10.0.0.3:1  0s      -
gpu-1: degraded: kv-transfer: tcp
gpu-1: degraded: seed
gpu-2: starting: loading weights
gpu-2: index degraded: diverging: x
gpu-3: index predictive: it does not say where its blocks are announced
gpu-3: the policy has no endpoint elsewhere
door-1: Envoy is not connected
endpoint demo: 1 of 2 workers can be picked
`
	if got := out.String(); got != strings.ReplaceAll(want, "demo", endpoint) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if err := st.lacking(); err != nil {
		t.Error(err)
	}
	f.Update("gpu-1", fleet.Failed)
	if err := newFleetStatus(f, snap, nil).lacking(); err == nil || !strings.Contains(err.Error(), endpoint) {
		t.Errorf("nobody is ready: %v", err)
	}
	if err := newFleetStatus(f, nil, nil).lacking(); err == nil || !strings.Contains(err.Error(), "no policy") {
		t.Errorf("without a policy: %v", err)
	}
}

// TestFleetStatusFindsTheDoor by its folder or its address, and says so where there is none.
func TestFleetStatusFindsTheDoor(t *testing.T) {
	page := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	good, err := json.Marshal(fleetStatus{Door: "d", Endpoints: []endpointStatus{{"large", 1, 1}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := writeAddress(filepath.Join(dir, "run", opsFile), page(200, string(good))); err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, c := range map[string]struct {
		args []string
		want string // of the error
	}{
		"by its folder":   {[]string{"-dir", dir}, ""},
		"by its address":  {[]string{"-ops", page(200, string(good)), "-o", "json"}, ""},
		"no such folder":  {[]string{"-dir", filepath.Join(dir, "x")}, "no door has run in"},
		"it is gone":      {[]string{"-ops", strings.TrimPrefix(gone.URL, "http://")}, "is it running?"},
		"a worker's page": {[]string{"-ops", page(404, "404 page not found")}, "answers 404"},
		"something else":  {[]string{"-ops", page(200, "<html>")}, "is no door"},
		"wrong output":    {[]string{"-dir", dir, "-o", "yaml"}, "want text or json"},
	} {
		err := showFleet(context.Background(), c.args)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWhatADoorNeedsOfItsFleet: a token, or certificates and a secret; and no token in the clear.
func TestWhatADoorNeedsOfItsFleet(t *testing.T) {
	token, short := secretFile(t, strings.Repeat("t", 40)+"\n"), secretFile(t, "short")
	c := mtlstest.New(t).Issue(t, "door.test")
	certified := []string{"-fleet-cert", c.Cert, "-fleet-key", c.Key, "-fleet-ca", c.CA}
	for name, x := range map[string]struct {
		args []string
		want string
	}{
		"a socket and a token":         {[]string{"-join-token-file", token}, ""},
		"a socket alone":               {nil, "-join-token-file is missing"},
		"a short token":                {[]string{"-join-token-file", short}, "at least 32 characters"},
		"loopback":                     {[]string{"-join-token-file", token, "-fleet-listen", "127.0.0.1:1"}, ""},
		"localhost":                    {[]string{"-join-token-file", token, "-fleet-listen", "localhost:1"}, ""},
		"open":                         {[]string{"-join-token-file", token, "-fleet-listen", "10.0.0.1:1"}, "-fleet-plain where the network itself encrypts"},
		"open everywhere":              {[]string{"-join-token-file", token, "-fleet-listen", ":1"}, "is open to the network"},
		"open on purpose":              {[]string{"-join-token-file", token, "-fleet-listen", ":1", "-fleet-plain"}, ""},
		"certificates, a secret":       {append([]string{"-fleet-listen", ":1", "-seed-file", token}, certified...), ""},
		"certificates, a token":        {append([]string{"-fleet-listen", ":1", "-join-token-file", token}, certified...), ""},
		"certificates alone":           {append([]string{"-fleet-listen", ":1"}, certified...), "-seed-file is missing"},
		"certificates, a short secret": {append([]string{"-fleet-listen", ":1", "-seed-file", short}, certified...), "at least 32 characters"},
		"certificates on a socket":     {append([]string{"-seed-file", token}, certified...), "-join-token-file is missing"},
		"half of the certificates":     {[]string{"-fleet-listen", ":1", "-fleet-cert", c.Cert}, "its key"},
		"impatience":                   {[]string{"-join-token-file", token, "-redis-timeout", "1ms"}, "-redis-timeout 1ms: want 10ms to 2s"},
	} {
		var d doorFlags
		f := flag.NewFlagSet("door", flag.ContinueOnError)
		d.register(f)
		err := parse(f, append(x.args, "-dir", t.TempDir()))
		if err == nil {
			err = d.complete()
		}
		if err == nil {
			_, _, err = d.fleetFlags.secrets()
		}
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSeedsAgree among doors with the same secret in the same spoke, and with nobody else; 0 is none.
func TestSeedsAgree(t *testing.T) {
	one := seedOf("secret", "north")
	if one == 0 || one != seedOf("secret", "north") || one == seedOf("secret", "south") || one == seedOf("secreT", "north") {
		t.Errorf("seeds %d %d %d", one, seedOf("secret", "south"), seedOf("secreT", "north"))
	}
	if one != 5862826824244478359 {
		t.Errorf("seed %d: doors of two releases differ", one)
	}
}

func TestSeedFollowsItsFile(t *testing.T) {
	file := secretFile(t, strings.Repeat("a", 32))
	s := newSeed(strings.Repeat("a", 32), file, "north", slog.New(slog.DiscardHandler))
	before, changed := s.current()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	if err := os.WriteFile(file, []byte(strings.Repeat("b", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	<-changed
	if after, _ := s.current(); after == before || after != seedOf(strings.Repeat("b", 32), "north") {
		t.Errorf("from %d to %d", before, after)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestWhatAWorkersCertificateMustBe is told at its start.
func TestWhatAWorkersCertificateMustBe(t *testing.T) {
	a := mtlstest.New(t)
	for name, c := range map[string]struct {
		files mtls.Files
		doors string
		named string
		want  string
	}{
		"its own":               {a.Issue(t, "w1"), "door.test:1,10.0.0.1:1", "", ""},
		"its own, by URI":       {a.Issue(t, "spiffe://north/worker/w1"), "door.test:1", "", ""},
		"another's":             {a.Issue(t, "w2"), "door.test:1", "", "want the DNS name w1"},
		"a socket's door":       {a.Issue(t, "w1"), "unix:/s", "", "-tls-door-name is missing"},
		"a socket's door named": {a.Issue(t, "w1"), "unix:/s", "door.test", ""},
		"no port":               {a.Issue(t, "w1"), "door.test", "", "want host:port"},
		"half":                  {mtls.Files{Cert: "c"}, "door.test:1", "", "its key"},
		"none":                  {mtls.Files{}, "door.test:1", "", ""},
	} {
		w := workerFlags{name: "w1", spoke: "north", doors: c.doors, tls: tlsFlags{files: c.files, doorName: c.named}}
		_, err := w.tls.open(w, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnThisMachine(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "localhost:1": true, "[::1]:1": true, "unix:/x": true,
		":1": false, "0.0.0.0:1": false, "10.0.0.1:1": false, "[::]:1": false, "x": false,
	} {
		if onThisMachine(address) != want {
			t.Errorf("onThisMachine(%q) is not %t", address, want)
		}
	}
}
