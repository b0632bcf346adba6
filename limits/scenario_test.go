package limits_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	holds  map[string]limits.Hold
}

// run acts on one command. Each may have at=DURATION, the time since noon; default 0s.
func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	var after string
	d.MaybeScanArgs(t, "at", &after)
	at, err := time.ParseDuration(after)
	if after != "" && err != nil {
		d.Fatalf(t, "%v", err)
	}
	now := start.Add(at)
	switch d.Cmd {
	case "limits":
		return s.setLimits(t, d)
	case "ask":
		return s.ask(t, now, d)
	case "renew":
		return s.each(d, func(h limits.Hold) error {
			if !renewed(t, s.m, now, h) {
				return errLost
			}
			return nil
		})
	case "release":
		return s.each(d, func(h limits.Hold) error { return s.m.Release(t.Context(), now, h, limits.Used{}) })
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

// setLimits reads lines like: team research [for MODEL] rate=10 burst=5 concurrency=2
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
	default:
		t.Fatalf("unknown value %s", name)
	}
}

// ask asks for each named admission; "for=MODEL" leaves out limits that name another model.
func (s *scenario) ask(t *testing.T, now time.Time, d *datadriven.TestData) string {
	model := ""
	d.MaybeScanArgs(t, "for", &model)
	ls := slices.DeleteFunc(slices.Clone(s.limits), func(l policy.Limit) bool { return l.Model != "" && l.Model != model })
	var out strings.Builder
	for _, name := range names(d) {
		dec, err := s.m.Acquire(t.Context(), now, limits.Ask{Admission: name, Limits: ls})
		if err != nil {
			t.Fatal(err)
		}
		if dec.Admitted {
			s.holds[name] = dec.Hold
		}
		fmt.Fprintf(&out, "%s: %s\n", name, dec)
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
		if len(a.Vals) == 0 {
			ns = append(ns, a.Key)
		}
	}
	return ns
}
