package openai

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

// usageCase is one case of usage.yaml. Pointers to pointers tell "must be unknown" from "is not checked".
type usageCase struct {
	Name   string
	Path   string
	JSON   *string
	Chunks []string
	Status int
	Close  string
	Want   map[string]any
}

func loadCases[T any](t testing.TB, file string) []T {
	t.Helper()
	raw, err := os.ReadFile("../test/testdata/cases/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := yaml.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatalf("no cases in %s", file)
	}
	return cases
}

func (c usageCase) op(t testing.TB) Op {
	if c.Path == "" {
		return Chat
	}
	op, _, err := Route("POST", c.Path)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func (c usageCase) pieces() []string {
	if c.JSON != nil {
		return []string{*c.JSON}
	}
	return c.Chunks
}

func TestUsageCases(t *testing.T) {
	for _, c := range loadCases[usageCase](t, "usage.yaml") {
		t.Run(c.Name, func(t *testing.T) {
			r := meter(c.op(t), c.JSON == nil, c.pieces()...)
			c.check(t, r)
		})
	}
}

func (c usageCase) check(t *testing.T, r Report) {
	t.Helper()
	for name, got := range map[string]*int64{"prompt": r.Usage.Prompt, "completion": r.Usage.Completion, "cached": r.Usage.Cached} {
		if want, ok := c.Want[name]; ok {
			checkCount(t, name, got, want)
		}
	}
	if want, ok := c.Want["counted_from"]; ok && r.CountedFrom != want {
		t.Errorf("counted from %q, want %q", r.CountedFrom, want)
	}
	want, _ := c.Want["anomaly"].(string)
	if got := strings.Join(r.Anomalies, " "); got != want {
		t.Errorf("anomalies %q, want %q", got, want)
	}
	switch c.Want["outcome"] {
	case "complete":
		if !r.Terminal || r.Failed {
			t.Errorf("terminal %v, failed %v; want a complete answer", r.Terminal, r.Failed)
		}
	case "upstream_error":
		if !r.Failed {
			t.Error("the error was not seen")
		}
	case "client_cut", "upstream_cut":
		if r.Terminal || r.Failed {
			t.Errorf("terminal %v, failed %v; want a cut", r.Terminal, r.Failed)
		}
	}
}

func checkCount(t *testing.T, name string, got *int64, want any) {
	t.Helper()
	switch {
	case want == nil && got != nil:
		t.Errorf("%s: got %d, want unknown", name, *got)
	case want != nil && got == nil:
		t.Errorf("%s: unknown, want %v", name, want)
	case want != nil && uint64(*got) != want:
		t.Errorf("%s: got %d, want %v", name, *got, want)
	}
}

// meter returns the report on pieces written one by one.
func meter(op Op, sse bool, pieces ...string) Report {
	m := NewMeter(op, sse)
	for _, p := range pieces {
		m.Write([]byte(p))
	}
	return m.Close()
}

// Every case read byte by byte, and from one buffer that is overwritten, must give what it gives in one piece.
func TestAnySplitIsNoSplit(t *testing.T) {
	streams := []string{}
	for _, c := range loadCases[usageCase](t, "usage.yaml") {
		streams = append(streams, strings.Join(c.pieces(), ""))
	}
	for _, c := range meterCases {
		streams = append(streams, c.sent)
	}
	for _, s := range streams {
		for _, sse := range []bool{true, false} {
			for op := Unknown; op <= Models; op++ {
				whole := meter(op, sse, s)
				if diff := cmp.Diff(whole, bytewise(op, sse, s)); diff != "" {
					t.Errorf("%v sse=%v %q: byte by byte differs: %s", op, sse, s, diff)
				}
				for i := range s {
					if diff := cmp.Diff(whole, meter(op, sse, s[:i], s[i:])); diff != "" {
						t.Fatalf("%v sse=%v %q: cut at %d differs: %s", op, sse, s, i, diff)
					}
				}
			}
		}
	}
}

func bytewise(op Op, sse bool, s string) Report {
	m := NewMeter(op, sse)
	var one [1]byte
	for i := range len(s) {
		one[0] = s[i]
		m.Write(one[:])
	}
	return m.Close()
}

func TestMeter(t *testing.T) {
	for _, c := range meterCases {
		t.Run(c.name, func(t *testing.T) {
			if got := describe(meter(c.op, !c.json, c.sent)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestCloseIsIdempotent(t *testing.T) {
	m := NewMeter(Chat, true)
	m.Write([]byte(chunk))
	first := m.Close()
	*first.Usage.Completion = 99
	m.Write([]byte(chunk))
	if got := m.Close(); *got.Usage.Completion != 38 || got.Events != 1 {
		t.Errorf("second Close: %s", describe(got))
	}
}

func TestWriteDoesNotAllocate(t *testing.T) {
	m := NewMeter(Chat, true)
	p := []byte(": spokegate-usage {\"prompt_tokens\":7}\n" + chunk + ": ping\r\n\r\nevent: x\ndata: {\"us\\u0061ge\":{}\ndata: }\n\n")
	m.Write(p) // the counter of choice 0 is made once
	if n := testing.AllocsPerRun(100, func() { m.Write(p) }); n != 0 {
		t.Errorf("%v allocations a Write", n)
	}
}

func TestHostileStreamsStaySmall(t *testing.T) {
	hostile := []string{
		"data: " + strings.Repeat("[", 1<<20),
		"data: " + strings.Repeat(`{"usage":`, 1<<17),
		`data: {"` + strings.Repeat("k", 1<<20),
		strings.Repeat("x", 1<<20),
		`data: {"choices":[{"index":9007199254740991,"delta":{"content":"a"}}],"usage":{"completion_tokens":5}}` + "\n\n",
		": spokegate-usage " + strings.Repeat("9", 1<<20),
		strings.Repeat("\r", 1<<20),
		strings.Repeat("data: {}\n", 1<<16) + "\n",
	}
	for _, s := range hostile {
		m := NewMeter(Chat, true)
		m.Write([]byte(s))
		m.Close()
		if cap(m.tally.perChoice) > 2*maxChoices {
			t.Errorf("%.40q: %d counters", s, cap(m.tally.perChoice))
		}
	}
	m := NewMeter(Chat, true)
	p := []byte(hostile[0])
	if n := testing.AllocsPerRun(5, func() { m.Write(p) }); n != 0 {
		t.Errorf("%v allocations a Write of a depth bomb", n)
	}
}

// describe writes a report on one line, unknown as "?".
func describe(r Report) string {
	b := []byte{}
	for _, n := range []*int64{r.Usage.Prompt, r.Usage.Cached, r.Usage.Completion, r.Usage.Reasoning} {
		b = append(appendCount(b, n), ' ')
	}
	b = append(b, r.CountedFrom...)
	b = append(b, " events="...)
	b = appendCount(b, &r.Events)
	flags := map[string]bool{" terminal": r.Terminal, " failed": r.Failed, " upstream_cut": r.UpstreamCut}
	for _, name := range []string{" terminal", " failed", " upstream_cut"} {
		if flags[name] {
			b = append(b, name...)
		}
	}
	for _, a := range slices.Clone(r.Anomalies) {
		b = append(append(b, " !"...), a...)
	}
	return string(b)
}
