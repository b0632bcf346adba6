package limits_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

// TestScenarios tells stories, each file one: who asks when, who is refused by what, what is left. Rewrite what is
// expected with -rewrite, then read it.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{m: limits.NewMemory(limits.MemoryConfig{LeaseTTL: 30 * time.Second}), holds: map[string]limits.Hold{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

type scenario struct {
	m      *limits.Memory
	limits []policy.Limit

	mu    sync.Mutex
	holds map[string]limits.Hold
}

// run acts on one command. Each may have at=DURATION, the time since noon of 1 March 2026, or on=MOMENT; default noon.
func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	now := s.moment(t, d)
	switch d.Cmd {
	case "limits":
		return s.setLimits(t, d)
	case "ask":
		return s.ask(t, now, d)
	case "crowd":
		return s.crowd(t, now, d)
	case "look":
		return s.look(t, now)
	case "renew":
		return s.each(d, func(h limits.Hold) error {
			if !renewed(t, s.m, now, h) {
				return errLost
			}
			return nil
		})
	case "release":
		used := limits.Used{Tokens: number(t, d, "used"), Unserved: d.HasArg("unserved")}
		return s.each(d, func(h limits.Hold) error { return s.m.Release(t.Context(), now, h, used) })
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

func (s *scenario) moment(t *testing.T, d *datadriven.TestData) time.Time {
	var at, on string
	d.MaybeScanArgs(t, "at", &at)
	if d.MaybeScanArgs(t, "on", &on); on != "" {
		moment, err := time.Parse("2006-01-02T15:04:05", on)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return moment
	}
	after, err := time.ParseDuration(at)
	if at != "" && err != nil {
		d.Fatalf(t, "%v", err)
	}
	return start.Add(after)
}

// number reads an argument such as tokens=1000, or used=unknown, which is -1; none is 0.
func number(t *testing.T, d *datadriven.TestData, name string) int64 {
	var value string
	switch d.MaybeScanArgs(t, name, &value); value {
	case "":
		return 0
	case "unknown":
		return -1
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}

// setLimits reads lines like: team research [for MODEL] rate=10 burst=5 concurrency=2 tokens/minute=1000
func (s *scenario) setLimits(t *testing.T, d *datadriven.TestData) string {
	s.limits = nil
	for line := range strings.Lines(d.Input) {
		l := policy.Limit{ID: line[:strings.IndexByte(line+"=", '=')]}
		words := strings.Fields(line)
		l.Level = map[string]policy.Level{"platform": policy.Platform, "model": policy.ModelLevel, "team": policy.TeamLevel, "key": policy.KeyLevel}[words[0]]
		var owner []string
		for i, word := range words[1:] {
			name, value, set := strings.Cut(word, "=")
			if !set && words[i] == "for" {
				l.Model = word
			} else if !set && word != "for" {
				owner = append(owner, word)
			} else if set {
				setValue(t, &l, name, value)
			}
		}
		l.Owner = strings.Join(owner, " ")
		l.ID = fmt.Sprint(l.Level, "/", l.Owner, "/", l.Model)
		s.limits = append(s.limits, l)
	}
	return fmt.Sprintf("%d limits", len(s.limits))
}

func setValue(t *testing.T, l *policy.Limit, name, value string) {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	switch name {
	case "rate":
		l.RequestsPerSecond = f
	case "burst":
		l.Burst = int(f)
	case "concurrency":
		l.Concurrency = int(f)
	case "tokens/minute":
		l.TokensPerMinute = int64(f)
	case "requests/day":
		l.RequestsPerDay = int64(f)
	case "tokens/day":
		l.TokensPerDay = int64(f)
	case "requests/month":
		l.RequestsPerMonth = int64(f)
	case "tokens/month":
		l.TokensPerMonth = int64(f)
	default:
		t.Fatalf("unknown value %s", name)
	}
}

// ask asks for each named admission; "for=MODEL" leaves out limits that name another model, "tokens=N" reserves so many.
func (s *scenario) ask(t *testing.T, now time.Time, d *datadriven.TestData) string {
	var out strings.Builder
	for _, name := range names(d) {
		fmt.Fprintf(&out, "%s: %s\n", name, s.acquire(t, now, d, name))
	}
	return out.String()
}

func (s *scenario) acquire(t *testing.T, now time.Time, d *datadriven.TestData, name string) limits.Decision {
	model := ""
	d.MaybeScanArgs(t, "for", &model)
	ls := slices.DeleteFunc(slices.Clone(s.limits), func(l policy.Limit) bool { return l.Model != "" && l.Model != model })
	dec, err := s.m.Acquire(t.Context(), now, limits.Ask{Admission: name, Limits: ls, Tokens: number(t, d, "tokens")})
	if err != nil {
		t.Error(err)
	}
	if dec.Admitted {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holds[name] = dec.Hold
	}
	return dec
}

// crowd asks for size=N admissions at the same moment, NAME1 to NAMEN, before any has an answer.
func (s *scenario) crowd(t *testing.T, now time.Time, d *datadriven.TestData) string {
	var wg sync.WaitGroup
	var admitted atomic.Int64
	begin := make(chan struct{})
	size := number(t, d, "size")
	for i := range size {
		wg.Go(func() {
			<-begin
			if s.acquire(t, now, d, fmt.Sprint(names(d)[0], i+1)).Admitted {
				admitted.Add(1)
			}
		})
	}
	close(begin)
	wg.Wait()
	return fmt.Sprintf("%d admitted, %d refused\n", admitted.Load(), size-admitted.Load())
}

// look shows how all limits stand.
func (s *scenario) look(t *testing.T, now time.Time) string {
	all, err := s.m.Look(t.Context(), now, s.limits)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, standing := range all {
		fmt.Fprintln(&out, standing)
	}
	return out.String()
}

var errLost = errors.New("lost")

// each does something with each named hold, and shows what is in flight then.
func (s *scenario) each(d *datadriven.TestData, f func(limits.Hold) error) string {
	var out strings.Builder
	for _, name := range names(d) {
		if err := f(s.holds[name]); err != nil {
			fmt.Fprintf(&out, "%s: %v\n", name, err)
		}
	}
	fmt.Fprintf(&out, "in flight: %v\n", s.m.InFlight())
	return out.String()
}

// names are the arguments without a value; a..c is not a range, each name stands for itself.
func names(d *datadriven.TestData) []string {
	var ns []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 && a.Key != "unserved" {
			ns = append(ns, a.Key)
		}
	}
	return ns
}
