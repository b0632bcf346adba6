package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// usageCase is one line of a usage file: what an engine answers, and what is to be journaled.
type usageCase struct {
	Name    string
	Path    string
	JSON    string
	Chunks  []string
	Status  int
	Close   string
	Linger  int            `yaml:"linger_ms"`
	Options string         // stream_options of the client, JSON
	Want    map[string]any // a field that is absent is not checked; null is unknown
}

// TestUsage plays each case with both pickers, and compares the records of the door and of the shim.
func TestUsage(t *testing.T) {
	t.Parallel()
	cases := append(loadCases[usageCase](t, "usage.yaml"), loadCases[usageCase](t, "more-usage.yaml")...)
	cases = append(cases, usageCase{Name: "cut inside a character", Chunks: []string{ // which YAML cannot say
		"data: {\"choices\":[{\"delta\":{\"content\":\"\xc3", "\xa4\"}}]}\n\n", "data: [DONE]\n\n"},
		Want: map[string]any{"completion": 1, "outcome": "complete", "counted_from": "events"}})
	eachPicker(t, func(t *testing.T, picker string) {
		u := attached(t, picker)
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				c.run(t, u)
			})
		}
	})
}

func (c usageCase) run(t *testing.T, u *up) {
	label := casePrefix + "usage/" + strings.ReplaceAll(c.Name, " ", "-")
	u.engine.plays(label, script{status: c.Status, json: c.JSON, chunks: c.Chunks, end: c.Close,
		linger: time.Duration(c.Linger) * time.Millisecond, onlyAt: c.path()})
	request := post(u.key("main"), c.path(), c.body(), field{caseHeader, label})
	var id string
	if c.Close == "client" {
		id = c.cut(t, u, request)
	} else {
		ctx, cancel := context.WithTimeout(t.Context(), callPatience)
		defer cancel()
		r, err := sendHTTP1(ctx, u.listen, request)
		if err != nil && c.Close != "server_reset" {
			t.Fatalf("%v (so far: %v)", err, r)
		}
		id = r.admission()
		c.intact(t, r)
	}
	rec := u.ledger.usage(t, id)
	c.compare(t, rec)
	c.agrees(t, rec, u.ledger.served(t, id))
}

func (c usageCase) path() string {
	if c.Path == "" {
		return "/v1/chat/completions"
	}
	return c.Path
}

func (c usageCase) body() string {
	q := map[string]any{"model": "cheap", "stream": c.Chunks != nil}
	switch c.path() {
	case "/v1/embeddings":
		q["input"] = "hi"
		delete(q, "stream")
	case "/v1/responses":
		q["input"] = "hi"
	case "/v1/completions":
		q["prompt"] = "hi"
	case "/v1/messages":
		q["max_tokens"] = 10
		q["messages"] = []any{}
	default:
		q["messages"] = []any{}
	}
	if c.Options != "" {
		q["stream_options"] = json.RawMessage(c.Options)
	}
	b, _ := json.Marshal(q) // of plain values
	return string(b)
}

// cut reads what the engine sent and leaves.
func (c usageCase) cut(t *testing.T, u *up, request call) string {
	t.Helper()
	s, err := u.openStream(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	defer s.cut()
	all := strings.Join(c.Chunks, "")
	if err := s.until(`"content"`, strings.Count(all, `"content"`)); err != nil {
		t.Fatal(err)
	}
	if err := s.until("[DONE]", strings.Count(all, "[DONE]")); err != nil {
		t.Fatal(err)
	}
	return s.admission()
}

// noteLines are the notes of a shim in a stream.
var noteLines = regexp.MustCompile(`(?m)^(:\n)?: spokegate-usage .*\n`)

// intact wants that the client sees the engine's words, but for usage that only the shim asked for.
func (c usageCase) intact(t *testing.T, r reply) {
	t.Helper()
	if c.Chunks == nil {
		if string(r.body) != c.JSON {
			t.Errorf("the answer was changed: want %q, got %q", c.JSON, r.body)
		}
		return
	}
	body := noteLines.ReplaceAll(r.body, nil)
	for event := range strings.SplitAfterSeq(strings.Join(c.Chunks, ""), "\n\n") {
		if !strings.Contains(event, "usage") && !bytes.Contains(body, []byte(event)) {
			t.Errorf("the client did not get %q; it got %q", event, r.body)
		}
	}
}

func (c usageCase) compare(t *testing.T, rec *usagev1.Record) {
	t.Helper()
	optional := map[string]*int64{"prompt": rec.PromptTokens, "completion": rec.CompletionTokens, "cached": rec.CachedTokens, "reasoning": rec.ReasoningTokens}
	text := map[string]string{"outcome": rec.GetOutcome(), "counted_from": rec.GetCountedFrom()}
	for name, want := range c.Want {
		got := "null"
		switch v, isCount := optional[name]; {
		case name == "anomaly":
			if !slices.Contains(rec.GetAnomalies(), fmt.Sprint(want)) {
				t.Errorf("want anomaly %v, got %v", want, rec.GetAnomalies())
			}
			continue
		case isCount && v != nil:
			got = fmt.Sprint(*v)
		case !isCount:
			got = text[name]
		}
		if want == nil {
			want = "null"
		}
		if got != fmt.Sprint(want) {
			t.Errorf("%s: want %v, got %s", name, want, got)
		}
	}
	if t.Failed() {
		t.Logf("the record: %s", usage.AppendJSON(nil, rec))
	}
}

// agrees wants that the shim, which saw the same bytes, journaled no less than the door.
func (c usageCase) agrees(t *testing.T, door, shim *usagev1.Record) {
	t.Helper()
	if door.CompletionTokens != nil && shim.GetCompletionTokens() < door.GetCompletionTokens() {
		t.Errorf("the door counted %d, the shim only %d", door.GetCompletionTokens(), shim.GetCompletionTokens())
	}
	if door.GetOutcome() == usage.OutcomeComplete {
		same := func(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
		if !same(door.PromptTokens, shim.PromptTokens) || !same(door.CompletionTokens, shim.CompletionTokens) || !same(door.CachedTokens, shim.CachedTokens) {
			t.Errorf("door and shim differ:\n%s\n%s", usage.AppendJSON(nil, door), usage.AppendJSON(nil, shim))
		}
	}
	if door.GetKey() != shim.GetKey() || door.GetTeam() != shim.GetTeam() || door.GetModel() != shim.GetModel() || door.GetEndpoint() != shim.GetEndpoint() {
		t.Errorf("door and shim speak of different callers:\n%s\n%s", usage.AppendJSON(nil, door), usage.AppendJSON(nil, shim))
	}
}
