package openai

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Random chat streams, written in every way that the SSE standard allows, against an oracle that buffers all and uses
// encoding/json.
func TestMeterAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		s := randomStream(rng)
		whole, want := meter(Chat, true, s), oracle(s)
		if diff := cmp.Diff(want, whole); diff != "" {
			t.Fatalf("%q\n(-oracle +meter) %s", s, diff)
		}
		if diff := cmp.Diff(whole, inSteps(Chat, true, []byte(s), 1+rng.IntN(20))); diff != "" {
			t.Fatalf("%q in steps differs: %s", s, diff)
		}
	}
}

type event struct {
	Choices []struct {
		Index int64
		Delta struct{ Content string }
	}
	Usage *struct {
		Prompt     *int64 `json:"prompt_tokens"`
		Completion *int64 `json:"completion_tokens"`
	}
	Error any
}

func oracle(s string) Report {
	o := oracleState{perChoice: map[int64]int64{}}
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	blocks := strings.Split(strings.TrimPrefix(s, "\uFEFF"), "\n\n")
	for _, block := range blocks {
		var data []string
		for line := range strings.SplitSeq(block, "\n") {
			if value, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(value, " "))
			}
		}
		if data != nil {
			o.event(strings.Join(data, "\n"))
		}
	}
	return o.report()
}

type oracleState struct {
	r         Report
	perChoice map[int64]int64
	settled   bool
}

func (o *oracleState) event(data string) {
	if data == "[DONE]" {
		o.r.Terminal = true
		return
	}
	var e event
	if json.Unmarshal([]byte(data), &e) != nil {
		return // only the last event is cut
	}
	o.r.Failed = o.r.Failed || e.Error != nil
	for _, c := range e.Choices {
		if c.Delta.Content != "" {
			o.r.Events++
			o.settled = false
			break
		}
	}
	if e.Usage == nil {
		return
	}
	if e.Usage.Prompt != nil {
		o.r.Usage.Prompt = e.Usage.Prompt
	}
	if e.Usage.Completion != nil {
		o.completion(e, *e.Usage.Completion)
	}
}

func (o *oracleState) completion(e event, n int64) {
	o.settled = len(e.Choices) == 0
	if len(e.Choices) == 1 {
		o.perChoice[e.Choices[0].Index] = n
		n = 0
		for _, of := range o.perChoice {
			n += of
		}
	}
	o.r.Usage.Completion = &n
}

func (o *oracleState) report() Report {
	r := o.r
	r.CountedFrom = "none"
	if r.Usage.Prompt != nil || r.Usage.Completion != nil {
		r.CountedFrom = "engine"
	}
	c := r.Usage.Completion
	if r.Events > 0 && (c == nil || !o.settled && !r.Terminal && *c < r.Events) {
		r.Usage.Completion, r.CountedFrom = &r.Events, "events"
	}
	return r
}

func randomStream(rng *rand.Rand) string {
	var b strings.Builder
	if rng.IntN(8) == 0 {
		b.WriteString("\uFEFF")
	}
	for range rng.IntN(6) {
		eol := []string{"\n", "\r", "\r\n"}[rng.IntN(3)]
		for range rng.IntN(3) {
			b.WriteString([]string{": ping", "id: 1", "event: x", "x", ": data: {}"}[rng.IntN(5)] + eol)
		}
		writeData(&b, rng, randomEvent(rng), eol)
		b.WriteString(eol)
	}
	if rng.IntN(3) == 0 {
		b.WriteString("data: [DONE]\n\n")
	}
	s := b.String()
	if rng.IntN(4) == 0 {
		s = s[:rng.IntN(len(s)+1)]
	}
	return s
}

// writeData writes an event over one or more data lines, broken where JSON allows white space.
func writeData(b *strings.Builder, rng *rand.Rand, data, eol string) {
	prefix := []string{"data: ", "data:"}[rng.IntN(2)]
	b.WriteString(prefix)
	for rest := data; ; {
		i := strings.Index(rest, "| ")
		if i < 0 {
			b.WriteString(rest + eol)
			return
		}
		b.WriteString(rest[:i])
		if rest = rest[i+2:]; rng.IntN(3) == 0 {
			b.WriteString(eol + prefix)
		}
	}
}

func randomEvent(rng *rand.Rand) string {
	var parts []string
	if rng.IntN(5) > 0 {
		parts = append(parts, `"choices":`+randomChoices(rng))
	}
	switch rng.IntN(4) {
	case 0:
		parts = append(parts, `"usage":null`)
	case 1, 2:
		parts = append(parts, `"usage":{"total_tokens":99,| "prompt_tokens":`+randomCount(rng)+`,| "completion_tokens":`+randomCount(rng)+`}`)
	}
	if rng.IntN(10) == 0 {
		parts = append(parts, `"error":`+[]string{`null`, `{"code":"x"}`}[rng.IntN(2)])
	}
	parts = append(parts, `"x":{"usage":{"prompt_tokens":5},"l":[{"error":1},"]}\"",[]]}`)
	rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return `{| ` + strings.Join(parts, `,| `) + `| }`
}

func randomChoices(rng *rand.Rand) string {
	var list []string
	for range rng.IntN(3) {
		content := []string{``, `a`, `\n`, `ü😀`, `\"usage\":{\"prompt_tokens\":1}`, `\\`, `[DONE]`, `}]}`}[rng.IntN(8)]
		list = append(list, `{"index":`+strconv.Itoa(rng.IntN(3))+`,| "delta":{"role":"assistant",| "content":"`+content+`"},"usage":{"prompt_tokens":1}}`)
	}
	return `[` + strings.Join(list, `,| `) + `]`
}

func randomCount(rng *rand.Rand) string {
	return []string{"null", "0", "1", "2", "17", "123456789"}[rng.IntN(6)]
}
