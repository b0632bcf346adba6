package worker

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spokegate/spokegate/openai"
)

// segment is what a client gets of one event, and what the engine had used by then.
type segment struct {
	end    int // in all that it gets
	ended  bool
	report openai.Report
}

var blankLine = regexp.MustCompile(`(?:\n|\r)(?:\n|\r\n?)$`)

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
		of = append(of, segment{len(out), blankLine.Match(out), meter.Report()})
	}
	rest, _ := e.close(nil)
	e.to.meter.Close()
	if out = append(append(out, rest...), e.lastNote()...); len(of) > 0 {
		of[len(of)-1].end, of[len(of)-1].ended = len(out), blankLine.Match(out)
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
	known := []openai.Report{during} // what it may know of the last event: of one that has vanished, only with the next
	whole := done
	for whole > 0 && !of[whole-1].ended {
		whole--
		known = append(known, of[whole].report)
	}
	switch exact := done > 0 && whole == done && of[done-1].end == len(passed); {
	case exact:
		if diff := cmp.Diff(before, behind); diff != "" {
			t.Errorf("metered behind the shim: %s", diff)
		}
	case !fake && whole == 0:
		checkAmong(t, append(known, none), behind)
	case !fake:
		checkAmong(t, append(known, of[whole-1].report), behind)
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

// checkAmong holds what was metered of a part of a stream against what there was to know before its last events, and with them.
func checkAmong(t *testing.T, known []openai.Report, got openai.Report) {
	t.Helper()
	among := func(same func(openai.Report) bool) bool { return slices.ContainsFunc(known, same) }
	if !among(func(r openai.Report) bool { return same(r.Usage.Prompt, got.Usage.Prompt) }) ||
		!among(func(r openai.Report) bool { return r.Events == got.Events }) ||
		!among(func(r openai.Report) bool { return r.Terminal == got.Terminal }) ||
		!among(func(r openai.Report) bool { return r.Failed == got.Failed && r.UpstreamCut == got.UpstreamCut }) {
		t.Errorf("metered %+v, known was %+v", got, known)
	}
}

func same(a, b *int64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

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

// empties counts blank lines that end nothing, which readers who care little for the standard take for events.
func empties(stream string) (n int) {
	data := false
	for line := range strings.SplitSeq(strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n"), "\n") {
		if line == "" && !data {
			n++
		}
		data = line != "" && (data || strings.HasPrefix(line, "data"))
	}
	return n
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
	if n, of := empties(string(out)), empties(strings.Join(list, "")); n > of {
		t.Fatalf("%v: %d blank lines behind no data, of %d\n%q\nof %q", op, n, of, out, list)
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
		behind := openai.NewMeter(openai.Chat, true)
		_, _ = behind.Write(left)
		if got := behind.Close(); !cmp.Equal(got.Usage, want.Usage) || got.Terminal != want.Terminal || !got.UpstreamCut {
			t.Fatalf("seed %d: %q of %q: metered behind the shim %v, before it %v", seed, left, raw, got, want)
		}
	}
}

func must(r openai.Report, _ int64) openai.Report { return r }
