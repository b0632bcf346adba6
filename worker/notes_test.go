package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spokegate/spokegate/openai"
)

// rawStream writes what engines may send, event by event, each with its blank line.
func rawStream(rnd *rand.Rand, op openai.Op) (list []string) {
	pick := func(of ...string) string { return of[rnd.Intn(len(of))] }
	count := func() string { return pick("0", "1", "2", "3", "5", "17", "null", "-1", "9007199254740991") }
	usage := func() string {
		switch op {
		case openai.Messages:
			return fmt.Sprintf(`"usage":{"input_tokens":%s,"cache_read_input_tokens":%s,"output_tokens":%s}`, count(), pick("0", "3"), count())
		case openai.Responses:
			return fmt.Sprintf(`"usage":{"input_tokens":%s,"output_tokens":%s,"output_tokens_details":{"reasoning_tokens":%s}}`, count(), count(), count())
		}
		return fmt.Sprintf(`"usage":{"prompt_tokens":%s,"completion_tokens":%s,"prompt_tokens_details":{"cached_tokens":%s}}`, count(), count(), count())
	}
	content := func() string {
		text := pick("a", "", "ü", `\n: spokegate-usage {}`, "[DONE]")
		switch op {
		case openai.Messages:
			return `"type":"content_block_delta","delta":{"text":"` + text + `"}`
		case openai.Responses:
			return `"type":"response.output_text.delta","delta":"` + text + `"`
		}
		part := `"delta":{"content":"` + text + `"}`
		if op == openai.Completions {
			part = `"text":"` + text + `"`
		}
		return `"choices":[{"index":` + pick("0", "1", "2") + `,` + part + `}]`
	}
	last := func() string {
		switch op {
		case openai.Messages:
			return pick(`"type":"message_stop"`, `"type":"message_delta",`+usage())
		case openai.Responses:
			return `"type":"` + pick("response.completed", "response.failed") + `","response":{` + usage() + `}`
		}
		return `"choices":[],` + usage()
	}
	end := pick("\n", "\n", "\r\n", "\r")
	for range rnd.Intn(8) {
		lines := []string{}
		for range rnd.Intn(2) {
			lines = append(lines, pick(": ping", "id: 1", `: spokegate-usage {"prompt_tokens":9,"completion_tokens":9}`, ":spokegate-usage {", "event: error", "x"))
		}
		if rnd.Intn(6) > 0 {
			data := pick("{"+content()+"}", "{"+content()+"}", "{"+content()+","+usage()+"}", "{"+usage()+","+content()+"}", "{"+last()+"}", "[DONE]", `{"error":{"code":"x"}}`, "{")
			if strings.HasPrefix(data, `{"choices":[],`) {
				lines = nil // nobody calls that an error
			}
			lines = append(lines, pick("data: ", "data:")+data)
		}
		lines = append(lines, pick("", "", "", ": late")) // the blank line, or one before it
		if lines[len(lines)-1] != "" {
			lines = append(lines, "")
		}
		list = append(list, strings.Join(lines, end)+end)
	}
	return list
}

// segment is what a client gets of one event, and what the engine had used by then.
type segment struct {
	end    int // in all that it gets
	report openai.Report
}

// annotate passes events on, and tells of each what became of it.
func annotate(op openai.Op, strip *stripper, list []string) (out []byte, of []segment) {
	raw, meter := strings.Join(list, ""), openai.NewMeter(op, true)
	e := &events{to: newNotes(op, strip)}
	fed, end := 0, 0
	for _, event := range list {
		end += len(event)
		next := min(end+1, len(raw)) // what follows a CR decides
		out = append(out, e.write(nil, []byte(raw[fed:next]))...)
		fed = next
		_, _ = meter.Write([]byte(event))
		of = append(of, segment{len(out), meter.Report()})
	}
	rest, _ := e.close(nil)
	e.to.meter.Close()
	if out = append(append(out, rest...), e.lastNote()...); len(of) > 0 {
		of[len(of)-1].end = len(out)
	}
	return out, of
}

// lastWhole is the last whole note as Envoy finds it in what has passed, and where its line ends.
func lastWhole(passed []byte) (note []byte, end int) {
	at := bytes.LastIndexByte(passed, '\n')
	for at > 0 {
		begin := bytes.LastIndexByte(passed[:at], '\n')
		if note, ok := bytes.CutPrefix(passed[begin+1:at], []byte(noteMark)); ok && begin >= 0 {
			return note, at
		}
		at = begin
	}
	return []byte("{}"), 0
}

// throughNote is what a note tells of a report.
func throughNote(op openai.Op, r openai.Report) openai.Report {
	got, _ := openai.ReadNote(op, openai.AppendNote(nil, &r, 0))
	return got
}

// TestNotesTellAll: cut anywhere, the last note that has passed tells what the engine's bytes said of the events before it, and a
// meter behind the shim counts what one before it does.
func TestNotesTellAll(t *testing.T) {
	for seed := range int64(1200) {
		rnd := rand.New(rand.NewSource(seed))
		op := []openai.Op{openai.Chat, openai.Completions, openai.Messages, openai.Responses}[seed%4]
		var strip *stripper
		if op == openai.Chat || op == openai.Completions {
			strip = []*stripper{nil, {}, {client: true}}[rnd.Intn(3)]
		}
		list := rawStream(rnd, op)
		out, of := annotate(op, strip, list)
		cuts := []int{0}
		for _, s := range of {
			cuts = append(cuts, s.end, rnd.Intn(len(out)+1), rnd.Intn(len(out)+1))
		}
		for _, cut := range cuts {
			checkCut(t, op, out[:cut], of)
			if t.Failed() {
				t.Fatalf("seed %d, %v, cut at %d\n%q\nof %q", seed, op, cut, out, list)
			}
		}
		checkReader(t, op, strip, list, out)
	}
}

func checkCut(t *testing.T, op openai.Op, passed []byte, of []segment) {
	t.Helper()
	none := openai.Report{CountedFrom: "none"}
	before, done := none, 0 // of the events that have passed wholly
	for done < len(of) && of[done].end <= len(passed) {
		before = of[done].report
		done++
	}
	during := before // with the one that is on its way
	if done < len(of) {
		during = of[done].report
	}
	note, end := lastWhole(passed)
	got, _ := openai.ReadNote(op, note)
	want := before
	if done < len(of) && end > 0 && (done == 0 || end > of[done-1].end) {
		want = during // behind it, or before the end mark
	}
	fake := marked(passed, of, done)
	if diff := cmp.Diff(throughNote(op, want), got); diff != "" && !fake {
		t.Errorf("the note %s: %s", note, diff)
	}
	meter := openai.NewMeter(op, true)
	_, _ = meter.Write(passed)
	behind := meter.Close()
	switch exact := done > 0 && of[done-1].end == len(passed); {
	case !exact && !fake:
		checkBetween(t, before, during, behind)
	case exact:
		if diff := cmp.Diff(before, behind); diff != "" {
			t.Errorf("metered behind the shim: %s", diff)
		}
	}
}

// marked says that in what is on its way the engine's own comment is the last: ours comes with the event's end.
func marked(passed []byte, of []segment, done int) bool {
	from := 0
	if done > 0 {
		from = of[done-1].end
	}
	return done < len(of) && bytes.Contains(passed[min(from, len(passed)):], []byte(noteMark))
}

// checkBetween holds what was metered of a part of an event against what was before it, and is with it.
func checkBetween(t *testing.T, before, during, got openai.Report) {
	t.Helper()
	for name, n := range map[string][3]*int64{
		"prompt":    {before.Usage.Prompt, during.Usage.Prompt, got.Usage.Prompt},
		"reasoning": {before.Usage.Reasoning, during.Usage.Reasoning, got.Usage.Reasoning},
	} {
		if !same(n[0], n[2]) && !same(n[1], n[2]) {
			t.Errorf("%s: %v, neither %v nor %v", name, show(n[2]), show(n[0]), show(n[1]))
		}
	}
	for name, flag := range map[string][3]bool{
		"terminal": {before.Terminal, during.Terminal, got.Terminal},
		"failed":   {before.Failed, during.Failed, got.Failed},
		"cut":      {before.UpstreamCut, during.UpstreamCut, got.UpstreamCut},
	} {
		if flag[2] != flag[0] && flag[2] != flag[1] {
			t.Errorf("%s: %v", name, flag[2])
		}
	}
	if got.Events != before.Events && got.Events != during.Events {
		t.Errorf("%d events, neither %d nor %d", got.Events, before.Events, during.Events)
	}
}

func same(a, b *int64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func show(n *int64) any {
	if n == nil {
		return "unknown"
	}
	return *n
}

// read is how the SSE standard reads a stream: the events with data, and their kinds.
func read(stream string) (list [][2]string) {
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	kind, data := "", []string(nil)
	lines := strings.Split(stream, "\n")
	for _, line := range lines[:len(lines)-1] { // what has no end is no line
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				list = append(list, [2]string{kind, strings.Join(data, "\n")})
			}
			kind, data = "", nil
		case name == "event":
			kind = value
		case name == "data":
			data = append(data, value)
		}
	}
	return list
}

// checkReader: a client sees the engine's events, but for usage that it did not ask for.
func checkReader(t *testing.T, op openai.Op, strip *stripper, list []string, out []byte) {
	t.Helper()
	want := read(strings.Join(list, ""))
	if strip != nil {
		want = slices.DeleteFunc(want, func(e [2]string) bool {
			return !strip.client && strings.HasPrefix(e[1], `{"choices":[],"usage"`)
		})
		for i, e := range want {
			want[i][1] = withoutUsage(e[1])
		}
	}
	got := read(string(out))
	for i, e := range got {
		if strip != nil && json.Valid([]byte(e[1])) {
			got[i][1] = compact(e[1])
		}
	}
	if !slices.Equal(want, got) {
		t.Fatalf("%v: a client sees other events: %s\n%q\nof %q", op, cmp.Diff(want, got), out, list)
	}
}

// withoutUsage is a chunk as the engine would have sent it by itself.
func withoutUsage(data string) string {
	var chunk map[string]json.RawMessage
	if json.Unmarshal([]byte(data), &chunk) != nil {
		return data
	}
	if string(chunk["choices"]) != "[]" && chunk["choices"] != nil {
		delete(chunk, "usage")
	}
	b, _ := json.Marshal(chunk)
	return string(b)
}

func compact(data string) string {
	var chunk map[string]json.RawMessage
	if json.Unmarshal([]byte(data), &chunk) != nil {
		return data
	}
	b, _ := json.Marshal(chunk)
	return string(b)
}

// TestNotesOfBrokenStreams: however the engine leaves, the last note tells all that it has said, and what was left open is not ended
// but by our own last event.
func TestNotesOfBrokenStreams(t *testing.T) {
	for seed := range int64(3000) {
		rnd := rand.New(rand.NewSource(seed))
		raw := strings.Join(rawStream(rnd, openai.Chat), "")
		raw = raw[:rnd.Intn(len(raw)+1)]
		e := &events{to: newNotes(openai.Chat, nil)}
		out := e.write(nil, []byte(raw))
		rest, _ := e.close(nil)
		out = append(out, rest...)
		want := e.to.meter.Close()
		end := e.lastNote()
		if len(out) == 0 {
			if len(end) > 0 {
				t.Fatalf("seed %d: of nothing that has passed %q is told", seed, end)
			}
			continue
		}
		left := append(bytes.Clone(out), end...)
		note, _ := lastWhole(left)
		if diff := cmp.Diff(throughNote(openai.Chat, want), must(openai.ReadNote(openai.Chat, note))); diff != "" {
			t.Fatalf("seed %d: %q of %q: %s", seed, left, raw, diff)
		}
		if diff := cmp.Diff(read(raw), read(string(left))); diff != "" {
			t.Fatalf("seed %d: %q of %q: %s", seed, left, raw, diff)
		}
		want.Failed, want.UpstreamCut = true, true
		left = append(out, e.cutOff(cutEvent(openai.Chat, "it broke"))...)
		note, _ = lastWhole(left)
		seen := read(string(left))
		if diff := cmp.Diff(throughNote(openai.Chat, want), must(openai.ReadNote(openai.Chat, note))); diff != "" || !strings.Contains(seen[len(seen)-1][1], "it broke") {
			t.Fatalf("seed %d: %q of %q: %s", seed, left, raw, diff)
		}
	}
}

func must(r openai.Report, _ int64) openai.Report { return r }
