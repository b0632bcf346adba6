package scrape

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/spokegate/spokegate/enginemetrics"
	"github.com/spokegate/spokegate/fleet"
)

// TestJudge tells what is believed of one worker after each look. A look is: silent, with why; or answers, with what it counts;
// or answers none, where it has no metrics, or unread, with why they could not be read.
func TestJudge(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		j := judge{starting: true}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				j = judge{starting: true}
				return ""
			}
			v := j.take(lookOf(t, d))
			return tellVerdict(v) + fmt.Sprintf("again in at most %v\n", j.pace(time.Second, 3, 1))
		})
	})
}

func lookOf(t *testing.T, d *datadriven.TestData) found {
	f := found{at: time.Unix(1, 0), answered: d.Cmd == "answers"}
	switch {
	case !f.answered:
		f.why = strings.TrimSpace(d.Input)
		return f
	case d.HasArg("none"):
		return f
	case d.HasArg("unread"):
		f.err = fmt.Errorf("GET /metrics: %s", strings.TrimSpace(d.Input))
		return f
	}
	f.known = true
	for name, to := range map[string]**int64{"prompt": &f.counters.Prompt, "completion": &f.counters.Completion,
		"running": &f.counters.Running, "waiting": &f.counters.Waiting} {
		if d.HasArg(name) {
			*to = new(int64)
			d.ScanArgs(t, name, *to)
		}
	}
	if d.HasArg("started") {
		var at int
		d.ScanArgs(t, "started", &at)
		f.counters.Started = float64(at)
	}
	return f
}

func tellVerdict(v verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v", v.state)
	if v.epoch != "" {
		fmt.Fprintf(&b, ", run %s", v.epoch)
	}
	if l := v.status.Load; l != nil {
		fmt.Fprintf(&b, ", %d running, %d waiting", l.Running, l.Waiting)
	}
	for _, text := range append([]string{v.status.Reason}, v.status.Degraded...) {
		if text != "" {
			fmt.Fprintf(&b, ", %s", text)
		}
	}
	return b.String() + "\n"
}

// looksOfIdle is how many looks there are at so many idle workers.
func looksOfIdle(workers int, in time.Duration) (n int) {
	for range workers {
		j := judge{starting: true}
		for at := spread(time.Second, workers, 0.5); at < in; at += j.pace(time.Second, workers, 0.5) {
			j.take(found{answered: true, known: true, counters: enginemetrics.Counters{Prompt: new(int64), Running: new(int64)}})
			n++
		}
	}
	return n
}

// TestIdleWorkersCostLittle: by BenchmarkLook one look is half a millisecond at most, so 30 a second are a sixtieth of a core.
func TestIdleWorkersCostLittle(t *testing.T) {
	for workers, most := range map[int]int{100: 30, 1000: 300, fleet.MaxWorkers: 350} {
		if n := looksOfIdle(workers, 5*time.Minute) / 300; n > most || n < most/2 {
			t.Errorf("%d idle workers: %d looks a second, want %d", workers, n, most)
		}
	}
}

// TestNoTwoKeepInStep: what is random spreads a pace over a quarter of it, and what is said is never older than a report may be.
func TestNoTwoKeepInStep(t *testing.T) {
	j := judge{idle: 8}
	soon, late := j.pace(time.Second, 100, 0), j.pace(time.Second, 100, 1)
	if soon != 3*time.Second || late != 4*time.Second {
		t.Errorf("%v to %v", soon, late)
	}
	if first := spread(time.Second, 300, 0.5); first != time.Second/2 {
		t.Errorf("%v", first)
	}
}
