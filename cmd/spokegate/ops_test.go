package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/identity/jwks"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/usage"
	"github.com/spokegate/spokegate/worker"
	"github.com/spokegate/spokegate/xds"
)

// saysWhy wants the status that belongs to a report, and its lines.
func saysWhy(t *testing.T, r report, ready bool, lines ...string) {
	t.Helper()
	rec := httptest.NewRecorder()
	r.write(rec)
	want := http.StatusOK
	if !ready {
		want = http.StatusServiceUnavailable
	}
	if rec.Code != want {
		t.Errorf("status %d, want %d:\n%s", rec.Code, want, rec.Body)
	}
	for _, l := range lines {
		if !strings.Contains(rec.Body.String(), l+"\n") {
			t.Errorf("no line %q in\n%s", l, rec.Body)
		}
	}
}

func snapshot(t *testing.T) *policy.Snapshot {
	t.Helper()
	_, h := identity.NewKey()
	set, err := policy.Parse("demo", policy.Demo("demo", []string{"m"}, h.String()))
	if err != nil {
		t.Fatal(err)
	}
	snap, err := policy.Compile(set, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// TestDoorSaysWhy has a case for every reason that a door's /readyz can give.
func TestDoorSaysWhy(t *testing.T) {
	snap := snapshot(t)
	endpoint := snap.Endpoints()[0].Name
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(*health)
		ready  bool
		line   string
	}{
		"all is well":      {func(*health) {}, true, "ok   policy: revision 7 from p.yaml"},
		"workers":          {func(*health) {}, true, "ok   endpoint " + endpoint + ": 1 workers can be picked"},
		"no policy":        {func(h *health) { h.policy = &policy.Current{} }, false, "FAIL policy: revision 7 from p.yaml"},
		"no Envoy":         {func(h *health) { h.connected = func() bool { return false } }, false, "FAIL envoy: not connected"},
		"no worker":        {func(h *health) { h.fleet = fleet.New() }, false, "FAIL endpoint " + endpoint + ": 0 workers can be picked"},
		"policy from disk": {func(h *health) { st := h.agent(); st.FromDisk = true; h.agent = func() xds.Status { return st } }, true, "note policy: the last good one, from disk; its source has not been heard since the start"},
		"policy refused": {func(h *health) {
			st := h.agent()
			st.LastNack, st.LastNackAt = "p.yaml:3:1: what is wrong", at
			h.agent = func() xds.Status { return st }
		}, true, "note policy: a later one was refused at 2026-01-02T03:04:05Z: p.yaml:3:1: what is wrong"},
		"keys revoked here": {func(h *health) {
			st := h.agent()
			st.Revoked = 2
			h.agent = func() xds.Status { return st }
		}, true, "note policy: 2 keys are revoked on this spoke alone"},
		"keys revoked wrongly": {func(h *health) {
			st := h.agent()
			st.RevokedErr = "revoked.yaml:1:1: what is wrong"
			h.agent = func() xds.Status { return st }
		}, true, "note policy: revoked.yaml:1:1: what is wrong"},
		"an issuer":            {issuer(jwks.Status{Keys: 2}), true, "note issuer corp: 2 keys from https://id"},
		"an issuer, at first":  {issuer(jwks.Status{}), true, "note issuer corp: no keys yet from https://id"},
		"an issuer, never":     {issuer(jwks.Status{Problem: "it answers 500"}), true, "note issuer corp: no keys, so none of its tokens is taken: it answers 500"},
		"an issuer, not again": {issuer(jwks.Status{Keys: 2, ReadAt: at, Problem: "it answers 500"}), true, "note issuer corp: 2 keys of 2026-01-02T03:04:05Z; they cannot be read anew: it answers 500"},
		"a degraded worker": {func(h *health) {
			h.fleet.Report("w", fleet.Status{Degraded: []string{"kv-transfer: tcp", "queue: 90 wait"}})
		}, true, "note worker w: degraded (kv-transfer: tcp; queue: 90 wait)"},
		"a worker whose blocks are known": {func(h *health) {
			h.indexes = func() []epp.Index { return []epp.Index{{Endpoint: endpoint, Addr: "10.0.0.1:1", State: epp.Indexed}} }
		}, true, "note workers: of 1 of 1 it is known exactly what they hold"},
		"an Envoy that drains": {func(h *health) { h.envoy = adminSays(t, http.StatusServiceUnavailable, "DRAINING\n") }, false, "FAIL envoy: draining"},
		"an Envoy that serves": {func(h *health) { h.envoy = adminSays(t, http.StatusOK, "LIVE\n") }, true, "ok   envoy: connected"},
		"a worker that diverges": {func(h *health) {
			h.indexes = func() []epp.Index {
				return []epp.Index{{Endpoint: endpoint, Addr: "10.0.0.1:1", State: epp.Degraded, Reason: "diverging: x"}}
			}
		}, true, "note worker w: index degraded (diverging: x)"},
		"a worker without blocks": {func(*health) {}, true, "note worker w: index predictive (it does not say where its blocks are announced)"},
		"limits":                  {func(*health) {}, true, "note limits: in Redis"},
		"what the journal notes": {func(h *health) {
			h.journal = func(r *report) { r.note("spool: 3 records lost: no space left on device") }
		}, true, "note spool: 3 records lost: no space left on device"},
	} {
		t.Run(name, func(t *testing.T) {
			workers := fleet.New()
			if _, err := workers.Join(fleet.Worker{Name: "w", Endpoint: endpoint, Addr: "10.0.0.1:1"}); err != nil {
				t.Fatal(err)
			}
			workers.Update("w", fleet.Ready)
			workers.Acked(map[string]uint64{endpoint: workers.View().Version})
			current := &policy.Current{}
			current.Store(snap)
			h := health{
				agent:  func() xds.Status { return xds.Status{Revision: 7, From: "p.yaml"} },
				policy: current, connected: func() bool { return true }, fleet: workers,
				issuers: func() []jwks.Status { return nil }, indexes: func() []epp.Index { return nil },
				counters: func() string { return "in Redis" }, journal: func(*report) {},
			}
			c.change(&h)
			saysWhy(t, h.report(), c.ready, c.line)
		})
	}
}

// adminSays is an Envoy's admin page whose /ready says that.
func adminSays(t *testing.T, status int, text string) *envoyAdmin {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ready" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return newEnvoyAdmin(strings.TrimPrefix(s.URL, "http://"), adminPatience)
}

func issuer(st jwks.Status) func(*health) {
	st.Name, st.Source = "corp", "https://id"
	return func(h *health) { h.issuers = func() []jwks.Status { return []jwks.Status{st} } }
}

// TestWorkerSaysWhy has a case for every reason that a worker's /readyz can give.
func TestWorkerSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		status worker.Status
		ready  bool
		line   string
	}{
		"all is well": {worker.Status{State: "ready", Engine: "sim", Running: 2, Doors: []string{"d1", "d2"}, Settled: true}, true, "ok   engine sim: ready, 2 requests running"},
		"doors":       {worker.Status{State: "ready", Doors: []string{"d1", "d2"}, Settled: true}, true, "ok   doors: joined to d1, d2"},
		"starting":    {worker.Status{State: "starting", Engine: "sim", Doors: []string{"d1"}, Settled: true}, false, "FAIL engine sim: starting, 0 requests running"},
		"failed":      {worker.Status{State: "failed", Reason: "exit status 1", Engine: "sim", Doors: []string{"d1"}, Settled: true}, false, "FAIL engine sim: failed: exit status 1, 0 requests running"},
		"draining":    {worker.Status{State: "draining", Engine: "sim", Doors: []string{"d1"}, Settled: true}, false, "FAIL engine sim: draining, 0 requests running"},
		"no door":     {worker.Status{State: "ready"}, false, "FAIL doors: not joined to any of a:1, b:2"},
		"refused":     {worker.Status{State: "ready", Away: []string{"a:1: a token is needed", "b:2"}}, false, "FAIL doors: not joined to a:1: a token is needed; b:2"},
		"one door":    {worker.Status{State: "ready", Doors: []string{"d1"}, Away: []string{"b:2"}, Settled: true}, true, "note doors: not joined to b:2"},
		"not settled": {worker.Status{State: "ready", Doors: []string{"d1"}, Away: []string{"b:2"}}, false, "FAIL doors: joined to d1, and not yet to b:2"},
		"journal":     {worker.Status{State: "ready", Doors: []string{"d1"}, Settled: true}, true, "note spool: 3 records lost: disk"},
	} {
		t.Run(name, func(t *testing.T) {
			h := workerHealth{status: func() worker.Status { return c.status }, journal: func(r *report) { r.note("spool: 3 records lost: disk") }, doors: []string{"a:1", "b:2"}}
			saysWhy(t, h.report(), c.ready, c.line)
		})
	}
}

func TestNobodySaidReady(t *testing.T) {
	saysWhy(t, report{}, false)
	var r report
	r.note("something")
	saysWhy(t, r, false, "note something")
}

// TestWorkerPages: the address is where the file says, and the pages end with the worker.
func TestWorkerPages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run", "w.ops")
	h := workerHealth{status: func() worker.Status { return worker.Status{} }, journal: func(*report) {}}
	pages := func(ctx context.Context) error {
		return workerOps(ctx, "127.0.0.1:0", file, newRegistry(), h, slog.New(slog.DiscardHandler))
	}
	worked := errors.New("worked")
	err := runWithOps(t.Context(), func(ctx context.Context) error {
		for { // until the file is there
			if ctx.Err() != nil {
				return ctx.Err()
			}
			address, err := os.ReadFile(file)
			if err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			for page, status := range map[string]int{"/healthz": 200, "/metrics": 200, "/readyz": 503} {
				resp, err := http.Get("http://" + strings.TrimSpace(string(address)) + page)
				if err != nil {
					return err
				}
				resp.Body.Close()
				if resp.StatusCode != status {
					t.Errorf("%s: %d", page, resp.StatusCode)
				}
			}
			return worked
		}
	}, pages)
	if !errors.Is(err, worked) {
		t.Error(err)
	}
	// Where the pages cannot be, the worker does not go on without a word.
	broken := errors.New("broken")
	err = runWithOps(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return nil }, func(context.Context) error { return broken })
	if !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestJournalSaysWhy has a case for each thing that a journal notes.
func TestJournalSaysWhy(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	noted := func(j *journal) string {
		r := report{}
		j.note(&r)
		return strings.Join(r.lines, "\n")
	}
	dir := t.TempDir()
	spool, err := usage.Open(filepath.Join(dir, "spool"), "door/d", usage.Options{MaxBytes: 1, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{spool: spool}
	if got := noted(j); got != "" {
		t.Errorf("an empty journal notes %q", got)
	}
	spool.Append(&usagev1.Record{Id: "a/usage", Kind: usage.KindUsage})
	_ = spool.Flush(t.Context()) // it is full, and says so in its own way
	if got := noted(j); !strings.HasPrefix(got, "note spool: 1 records lost") {
		t.Errorf("a full journal notes %q", got)
	}
	if err := spool.Close(t.Context()); err != nil {
		t.Log(err)
	}

	const nobody = "127.0.0.1:1" // a port that nobody answers on
	shipping, err := openJournal(dir+"/k", "door/d", kafkaFlags{brokers: nobody}, newRegistry(), log)
	if err != nil {
		t.Fatal(err)
	}
	if got := noted(shipping); !strings.HasPrefix(got, "note kafka: 0 records shipped") {
		t.Errorf("before anything happened: %q", got)
	}
	shipping.spool.Append(&usagev1.Record{Id: "a/usage", Kind: usage.KindUsage})
	for deadline := time.Now().Add(3 * time.Minute); !strings.HasPrefix(noted(shipping), "note kafka: not shipping since"); {
		if time.Now().After(deadline) {
			t.Fatalf("without a broker: %q", noted(shipping))
		}
		time.Sleep(5 * time.Millisecond)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_ = shipping.close(done) // nothing can be shipped any more
}

// Whoever runs without Redis learns that quotas do not outlive the door.
func TestCountersInMemorySayThatTheyAreForgotten(t *testing.T) {
	c, err := newCounters(doorFlags{}, nil, newRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Status(); got != "in memory, for this door alone; a restart forgets them" {
		t.Errorf("it says %q", got)
	}
}
