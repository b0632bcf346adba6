package worker

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

func (s *shim) isReady() bool { at, _ := s.states.now(); return at.state == workerv1.State_STATE_READY }

func (s *shim) causes() []string { at, _ := s.states.now(); return at.causes }

func lastTold(d *fakeDoor) *workerv1.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.told) == 0 {
		return nil
	}
	return d.told[len(d.told)-1]
}

// An engine that says it is well is ready when it has generated a token. The probe and the counters are journaled before
// anything is served, the counters again before it is stopped.
func TestReadyHasGenerated(t *testing.T) {
	e := newScripted(t)
	e.set(func() { e.status = http.StatusInternalServerError })
	s, _ := watched(t, e, hurried)
	eventually(t, "a probe", func() bool { return e.asked() > 0 })
	eventually(t, "the reason", func() bool {
		at, _ := s.states.now()
		return at.state == workerv1.State_STATE_STARTING && strings.Contains(at.reason, "answered 500: no: their-model")
	})
	if resp, body := s.do(t, s.request(t, context.Background(), "early", "/v1/completions", `{"model":"m","prompt":"x"}`)); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	e.set(func() { e.status = 0 })
	eventually(t, "ready", s.isReady)
	if resp, body := s.do(t, s.request(t, context.Background(), "a", "/v1/completions", `{"model":"m","prompt":"x"}`)); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if r := s.journal.one(t, "a"); r.EngineEpoch != "e1" {
		t.Errorf("served by run %q", r.EngineEpoch)
	}
	s.end(t)
	probes := s.journal.ofKind("probe")
	if len(probes) < 2 {
		t.Fatalf("%v", probes)
	}
	if p := probes[0]; p.Id != "probe/worker/w1/e1/1" || p.Outcome != "upstream_error" || p.GetStatus() != 500 || p.CompletionTokens != nil || p.Worker != "w1" || p.Spoke != "here" || p.Endpoint != "large" {
		t.Errorf("%v", p)
	}
	if p := probes[len(probes)-1]; p.Outcome != "complete" || p.GetPromptTokens() != 2 || p.GetCompletionTokens() != 1 || p.CountedFrom != "engine" || p.EngineEpoch != "e1" {
		t.Errorf("%v", p)
	}
	if got := s.journal.moments(); !slices.Equal(got, []string{"e1/first 2+1", "e1/last 4+2"}) {
		t.Errorf("%v", got)
	}
	if id := s.journal.ofKind("engine")[1].Id; id != "engine/worker/w1/e1/2" {
		t.Errorf("%s", id)
	}
}

// An engine is probed by the operation that it knows; one that knows none counts as ready by its health, and nothing is
// journaled of a probe that it refused.
func TestProbeFindsAnOperation(t *testing.T) {
	for path, want := range map[string]string{"/v1/completions": "completions", "/v1/chat/completions": "chat", "/v1/embeddings": "embeddings", "/none": ""} {
		e := newScripted(t)
		e.set(func() { e.only = path })
		s, _ := watched(t, e, hurried)
		eventually(t, "ready: "+path, s.isReady)
		probes := s.journal.ofKind("probe")
		if want == "" && len(probes) > 0 || want != "" && (len(probes) != 1 || probes[0].Operation != want) {
			t.Errorf("%s: %v", path, probes)
		}
		s.end(t)
	}
}

// A GPU that has died behind a healthy engine is found by the probe of an idle engine, which is started again.
func TestDeadWhileIdle(t *testing.T) {
	e := newScripted(t)
	watch := hurried
	watch.Idle = 10 * time.Millisecond
	s, engine := watched(t, e, watch)
	eventually(t, "probed while idle", func() bool { return len(s.journal.ofKind("probe")) >= 3 })
	e.set(func() { e.status = http.StatusInternalServerError })
	eventually(t, "degraded first", func() bool {
		return slices.ContainsFunc(s.causes(), func(c string) bool { return strings.HasPrefix(c, "probe: ") })
	})
	if reason := <-engine.restarts; !strings.Contains(reason, "has generated nothing") {
		t.Error(reason)
	}
	e.set(func() { e.status = 0 })
	eventually(t, "ready again", func() bool { return s.isReady() && s.Status().Epoch == "e2" })
	if got := s.journal.moments(); len(got) < 3 || !strings.HasPrefix(got[0], "e1/first") || !strings.HasPrefix(got[len(got)-2], "e1/lost") || !strings.HasPrefix(got[len(got)-1], "e2/first") {
		t.Errorf("%v", got)
	}
}

// An engine in which a request waits and no token comes is asked for one, and given up when none comes either. What was
// counted until then is journaled.
func TestHungWhileRequestsWait(t *testing.T) {
	e, j := newScripted(t), &journal{}
	m := unwatched(t, e, hurried, j)
	defer m.stopJobs()
	now := time.Now()
	m.readNow(readResult{counters: counters{Prompt: new(int64(2)), Completion: new(int64(1))}}, now)
	leave, _ := m.states.enter()
	defer leave()
	e.set(func() { e.hang = true })
	m.advance(t.Context(), now.Add(patience-1))
	if m.probe.runs() {
		t.Error("asked too early")
	}
	m.advance(t.Context(), now.Add(patience))
	eventually(t, "it is asked for a token", func() bool { return e.asked() == 1 })
	r, _ := m.probe.stop()
	r.err = errors.Join(r.err, context.DeadlineExceeded) // it was not the test that ended it
	m.probed(r, now.Add(2*patience))
	engine := m.engine.(*watchedEngine)
	if reason := <-engine.restarts; !strings.Contains(reason, "has generated nothing for 4m0s: no answer to POST /v1/completions") {
		t.Error(reason)
	}
	if p := j.ofKind("probe"); len(p) != 1 || p[0].Outcome != "upstream_cut" || p[0].CountedFrom != "none" || p[0].Status != nil {
		t.Errorf("%v", p)
	}
	for len(engine.lives) > 0 {
		m.take(<-engine.lives)
	}
	if got := j.moments(); !slices.Equal(got, []string{"e1/first 0+0", "e1/lost 2+1"}) || m.phase != proving || m.life.Epoch != "e2" {
		t.Errorf("%v, phase %v of %s", got, m.phase, m.life.Epoch)
	}
}

// An engine that generates, and whose probe waits in its queue, is not given up: tokens come.
func TestBusyIsNotHung(t *testing.T) {
	e := newScripted(t)
	m := unwatched(t, e, hurried, &journal{})
	now := time.Now()
	m.began = now.Add(-time.Hour)
	silent := probeResult{err: context.DeadlineExceeded, reached: true, took: time.Minute}
	for _, sign := range []func(){
		func() { m.moved = now.Add(-30 * time.Second) },
		func() { m.moved = m.began; m.traffic.at.Store(now.Add(-30 * time.Second).UnixNano()) },
	} {
		sign()
		m.probed(silent, now)
		if m.phase != trusted || m.fails != 0 {
			t.Errorf("given up: %v, %d fails", m.phase, m.fails)
		}
	}
	m.traffic.at.Store(0)
	m.probed(silent, now)
	if m.phase != doubted || len(m.engine.(*watchedEngine).restarts) != 1 {
		t.Errorf("nothing came for an hour: %v", m.phase)
	}
}

// While nothing runs the counters are journaled now and then, and only if they have changed.
func TestIdleCounters(t *testing.T) {
	e := newScripted(t)
	watch := hurried
	watch.Journal = time.Millisecond
	s, _ := watched(t, e, watch)
	eventually(t, "ready", s.isReady)
	s.do(t, s.request(t, context.Background(), "a", "/v1/completions", `{"model":"m","prompt":"x"}`))
	eventually(t, "an idle moment", func() bool { return len(s.journal.moments()) == 2 })
	read := func() int { e.mu.Lock(); defer e.mu.Unlock(); return e.reads }
	for from := read(); read() < from+20; time.Sleep(time.Millisecond) {
	}
	if got := s.journal.moments(); !slices.Equal(got, []string{"e1/first 2+1", "e1/idle 4+2"}) {
		t.Errorf("%v", got)
	}
}

// What the engine says of its load and of its troubles reaches the door and the status.
func TestLoadAndDegradation(t *testing.T) {
	e := newScripted(t)
	e.set(func() { e.running, e.waiting, e.cache = 3, 5, 0.5 })
	s, _ := watched(t, e, hurried)
	eventually(t, "ready", s.isReady)
	e.set(func() { e.preempted = 7 })
	eventually(t, "degraded", func() bool { return slices.Equal(s.causes(), []string{"preemptions: 7 in the last minute"}) })
	eventually(t, "the door knows", func() bool {
		last := lastTold(s.door)
		return last != nil && slices.Equal(last.Degraded, s.causes()) && last.Load.GetRunning() == 3 && last.Load.GetWaiting() == 5 &&
			last.Load.GetCacheUsedPermille() == 500 && last.Load.GetPreemptions() == 7
	})
	if st := s.Status(); st.State != "ready" || st.Load.GetWaiting() != 5 || len(st.Degraded) != 1 {
		t.Errorf("%+v", st)
	}
}

// unwatched is a monitor before a scripted engine that has generated, whose goroutine is the test.
func unwatched(t *testing.T, e *scriptedEngine, watch Watch, to Journal) *monitor {
	t.Helper()
	engine := &watchedEngine{newFakeEngine(t, e.server.URL), vllmSpeech, make(chan string, 8)}
	engine.lives = make(chan Life, 8)
	m := newMonitor(Config{Name: "w1", Engine: engine, Journal: to, Watch: watch}, newStates(), quiet())
	m.take(Life{State: workerv1.State_STATE_READY, Description: Description{Epoch: "e1"}})
	m.proved = true
	m.readNow(readResult{settled: true}, time.Now())
	if m.phase != trusted {
		t.Fatalf("phase %v", m.phase)
	}
	return m
}

// hooked is a journal that does something at each record.
type hooked struct {
	journal
	at func()
}

func (h *hooked) Append(r *usagev1.Record) { h.at(); h.journal.Append(r) }

// What an engine counted before a reading stands before it in the journal, and what it counts later behind: nobody enters
// while the reading is journaled, and a reading during which somebody came is not.
func TestIdleCountersStandWhereTheyBelong(t *testing.T) {
	j := &hooked{at: func() {}}
	m := unwatched(t, newScripted(t), hurried, j)
	entered, idle := m.states.rest()
	if entered != 0 || !idle {
		t.Fatalf("%d entered, idle %v", entered, idle)
	}
	grown := readResult{counters: counters{Completion: new(int64(5))}, settled: true, entered: entered}
	leave, _ := m.states.enter()
	m.readNow(grown, time.Now())
	leave()
	m.readNow(grown, time.Now())
	if got := j.moments(); len(got) != 1 {
		t.Fatalf("a request came, and these are journaled: %v", got)
	}
	grown.entered, _ = m.states.rest()
	open := false
	j.at = func() {
		if open = m.states.mu.TryLock(); open {
			m.states.mu.Unlock()
		}
	}
	m.readNow(grown, time.Now())
	if got := j.moments(); len(got) != 2 || got[1] != "e1/idle 0+5" || open {
		t.Errorf("%v, a request could enter: %v", got, open)
	}
}

// A probe would count in the middle of a reading that waits until the counters stand: it waits. One that only looks at the
// load holds no probe up.
func TestProbeWaitsForSettlingReading(t *testing.T) {
	watch := hurried
	watch.Idle = time.Nanosecond
	m := unwatched(t, newScripted(t), watch, &journal{})
	defer m.stopJobs()
	later := time.Now().Add(time.Hour)
	for _, settling := range []bool{true, false} {
		m.settling = settling
		m.read.start(t.Context(), time.Hour, func(ctx context.Context) readResult { <-ctx.Done(); return readResult{} })
		m.advance(t.Context(), later)
		if m.probe.runs() == settling {
			t.Errorf("settling %v: a probe runs: %v", settling, !settling)
		}
		m.read.stop()
	}
}

// Counters that cannot be read at the end are not those of the end.
func TestLastWordsUnread(t *testing.T) {
	e, j := newScripted(t), &journal{}
	m := unwatched(t, e, hurried, j)
	e.server.Close()
	m.lastWords(t.Context())
	if got := j.moments(); len(got) != 2 || !strings.HasPrefix(got[1], "e1/lost") {
		t.Errorf("%v", got)
	}
}

// TestAFirstReadingInTrafficIsUnknown: what runs while an engine is found again is journaled for no run, or for another one.
func TestAFirstReadingInTrafficIsUnknown(t *testing.T) {
	e := newScripted(t)
	var to journal
	engine := &watchedEngine{newFakeEngine(t, e.server.URL), vllmSpeech, make(chan string, 8)}
	engine.lives = make(chan Life, 8)
	m := newMonitor(Config{Name: "w1", Engine: engine, Watch: hurried, Journal: &to}, newStates(), quiet())
	m.take(Life{State: workerv1.State_STATE_READY, Description: Description{Epoch: "e1"}})
	m.proved = true
	seven := int64(7)
	m.readNow(readResult{counters: counters{Prompt: &seven, Completion: &seven}}, time.Now())
	records := to.ofKind("engine")
	if len(records) != 1 || records[0].Engine.GetMoment() != "first" || records[0].Engine.PromptTokens != nil || records[0].Engine.CompletionTokens != nil {
		t.Errorf("%v", records)
	}
}
