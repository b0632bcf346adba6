package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPickerByItself: the role `spokegate epp` behind a plain Envoy, configured as docs/epp.md says.
func TestPickerByItself(t *testing.T) {
	t.Parallel()
	l := startEPP(t)
	homes := map[string]int{}
	for _, topic := range []string{"trains", "ships", "planes"} {
		homes[topic] = l.ask(topic)
	}
	if homes["trains"] == homes["ships"] || homes["ships"] == homes["planes"] || homes["planes"] == homes["trains"] {
		t.Errorf("three conversations are at %v", homes)
	}
	eventually(t, startPatience, func() error { // two of the engines tell by events: 64 bytes of a prompt are a block
		if n := l.metric(t, "spokegate_picker_blocks"); n < 90 {
			return fmt.Errorf("%v blocks are announced", n)
		}
		return nil
	})
	for topic, home := range homes {
		elsewhere := l.engines[(home+1)%3]
		if at := l.ask(topic, field{"x-gateway-destination-endpoint", elsewhere}); at != home {
			t.Errorf("%s went on at %d, and was at %d", topic, at, home)
		}
	}
	// What two of the engines hold is known by their own events: the second turns went where it was announced.
	l.opsSays(t, "/readyz", "of 2 of 3 it is known exactly what they hold")
	if n := l.metric(t, "spokegate_pick_announced_bytes_total"); n < 2000 {
		t.Errorf("%v bytes of prompts were announced", n)
	}
	l.catalogued()
	l.survives(homes["trains"])
	l.emptied()
	l.drained()
}

// catalogued: what it exposes is what docs/metrics.md says.
func (l *eppLab) catalogued() {
	want := catalogue(l.t)
	got := expose(l.page(l.t, "/metrics"))
	for name, g := range got {
		if w := want[name]; w.kind != g.kind || !slices.Equal(w.labels, g.labels) {
			l.t.Errorf("%s is a %s by %q, and catalogued as a %s by %q", name, g.kind, g.labels, w.kind, w.labels)
		}
	}
	for name, w := range want {
		if _, ok := got[name]; !ok && w.at == "epp" && w.when == "always" {
			l.t.Errorf("%s is catalogued, and not exposed", name)
		}
	}
	if n := l.metric(l.t, "spokegate_picks_total"); n != 6 {
		l.t.Errorf("%v picks", n)
	}
}

// survives: an engine that dies is passed over, then failed, and comes back by itself.
func (l *eppLab) survives(engine int) {
	if engine == 2 {
		engine = 0 // the shim looks after that one
	}
	_ = l.sims[engine].cmd.Process.Kill()
	<-l.sims[engine].exited
	for _, topic := range []string{"trains", "ships", "planes"} {
		if at := l.ask(topic); at == engine {
			l.t.Errorf("a dead engine served %s", topic)
		}
	}
	l.pickable(2)
	l.startSim(engine)
	l.pickable(3)
}

// emptied: a pool without a worker is answered by the picker, and not for longer than it is so.
func (l *eppLab) emptied() {
	l.list()
	l.pickable(1)
	l.write("workers.yaml", "workers: {}\n")
	l.opsSays(l.t, "/readyz", "note file workers.yaml: [1:10]")
	l.list(0, 1)
	l.pickable(3)
}

// drained: what runs at its end is served to the end, and new requests are turned away.
func (l *eppLab) drained() {
	t := l.t
	long := l.begins(longTokens)
	l.books(1)
	long.cut()
	l.books(0)
	s := l.begins(800)
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.until("[DONE]", 1); err != nil {
		t.Error(err)
	}
	select {
	case <-l.exited:
		if l.err != nil {
			t.Errorf("the picker ended: %v", l.err)
		}
	case <-time.After(stopPatience):
		t.Error("the picker does not end")
	}
	if r := l.do(t, post("none", "/v1/chat/completions", talk("boats", false, 2))); r.status != http.StatusServiceUnavailable {
		t.Errorf("without a picker: %v", r)
	}
}

// begins opens a stream of so many tokens, and reads some.
func (l *eppLab) begins(tokens int) *stream {
	l.t.Helper()
	s, err := l.openStream(l.t.Context(), post("none", "/v1/chat/completions", talk("boats", true, tokens)))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(s.cut)
	if s.resp.StatusCode != http.StatusOK {
		l.t.Fatalf("%v", s.resp)
	}
	if err := s.until("data:", 3); err != nil {
		l.t.Fatal(err)
	}
	return s
}

// books waits until so many requests are booked.
func (l *eppLab) books(want float64) {
	l.t.Helper()
	eventually(l.t, factPatience, func() error {
		if n := l.load("requests"); n != want {
			return fmt.Errorf("%v requests are booked, want %v", n, want)
		}
		return nil
	})
}

// load sums one kind of what is booked over the workers.
func (l *eppLab) load(kind string) (sum float64) {
	for line := range strings.Lines(l.page(l.t, "/metrics")) {
		if strings.HasPrefix(line, workerLoad+"{") && strings.Contains(line, fmt.Sprintf("kind=%q", kind)) {
			var n float64
			_, value, _ := strings.Cut(line, "} ")
			if _, err := fmt.Sscan(value, &n); err != nil {
				l.t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
