package worker

import (
	"bytes"
	"fmt"
	"math/rand"
	"regexp"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/openai"
)

// run feeds a stream in pieces that cut chooses, and returns what a client gets.
func run(client bool, stream []byte, cut func(left int) int) (out []byte, whole bool) {
	e := &events{to: newNotes(openai.Chat, &stripper{client: client})}
	for len(stream) > 0 {
		n := min(max(cut(len(stream)), 1), len(stream))
		piece := bytes.Clone(stream[:n]) // so that keeping it would show
		out = append(out, e.write(nil, piece)...)
		for i := range piece {
			piece[i] = '#'
		}
		stream = stream[n:]
	}
	rest, whole := e.close(nil)
	e.to.meter.Close()
	return append(append(out, rest...), e.lastNote()...), whole
}

// withNote is an event with its note, before its blank line.
func withNote(event, note string) string {
	line := noteMark + note + "\n"
	if event == "" {
		return ":\n" + line
	}
	for _, blank := range []string{"\r\n", "\n", "\r"} {
		if body, ended := strings.CutSuffix(event, blank); ended && strings.HasSuffix(body, blank) {
			if blank == "\r" {
				line = "\n" + line
			}
			return body + line + blank
		}
	}
	if !strings.HasSuffix(event, "\n") {
		line = "\n" + line
	}
	return event + line
}

func atOnce(left int) int { return left }

func TestStrip(t *testing.T) {
	const last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":{\"reasoning_tokens\":1}}}\n\n"
	for _, c := range []struct{ name, in, unasked, note string }{
		{"running usage",
			"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":7,\"total_tokens\":8,\"completion_tokens\":1}}\n\n",
			"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", `{"prompt_tokens":7,"completion_tokens":1}`},
		{"last chunk", last, "", `{"prompt_tokens":7,"cached_tokens":4,"completion_tokens":1,"reasoning_tokens":1}`},
		{"usage first and spaces", "data: { \"usage\" : {\"prompt_tokens\": 1} , \"choices\": [ {} ]}\r\n\r\n",
			"data: { \"choices\": [ {} ]}\r\n\r\n", `{"prompt_tokens":1}`},
		{"usage in the middle", "data:{\"choices\":[{}], \"usage\":{}, \"x\":1}\r\r", "data:{\"choices\":[{}], \"x\":1}\r\r", "{}"},
		{"lines that end with CR", "data:{\"choices\":[{}], \"usage\":{\"prompt_tokens\":1}, \"x\":1}\r\r", "data:{\"choices\":[{}], \"x\":1}\r\r", `{"prompt_tokens":1}`},
		{"null stays", "data: {\"choices\":[{}],\"usage\":null}\n\n", "same", "{}"},
		{"text that looks like usage", "data: {\"choices\":[{\"delta\":{\"content\":\",\\\"usage\\\":{\\\"prompt_tokens\\\":9}\"}}]}\n\n", "same", `{"events":1}`},
		{"usage of somebody else", "data: {\"choices\":[{\"usage\":{\"prompt_tokens\":9}}]}\n\n", "same", "{}"},
		{"not a chunk", "data: {\"error\":{\"message\":\"x\"},\"usage\":{\"prompt_tokens\":9}}\n\n", "same", `{"prompt_tokens":9,"failed":true}`},
		{"an error beside usage", "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9},\"error\":{}}\n\n", "same", `{"prompt_tokens":9,"failed":true}`},
		{"event, id and comment", ": ping\nevent: x\nid: 1\ndata: {\"choices\":[{}],\"usage\":{\"completion_tokens\":-2}}\n\n",
			": ping\nevent: x\nid: 1\ndata: {\"choices\":[{}]}\n\n", `{"anomalies":["bad_usage"]}`},
		{"several data lines", "data: {\"choices\":[{}],\ndata: \"usage\":\ndata: {\"prompt_tokens\":3}\ndata: }\n\n",
			"data: {\"choices\":[{}]\ndata: \ndata: \ndata: }\n\n", `{"prompt_tokens":3}`},
		{"no end", "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":3}}", "data: {\"choices\":[{}]}", `{"prompt_tokens":3}`},
		{"no end, and nothing else", strings.TrimSpace(last), "", `{"prompt_tokens":7,"cached_tokens":4,"completion_tokens":1,"reasoning_tokens":1}`},
		{"no blank line", "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":3}}\n", "data: {\"choices\":[{}]}\n", `{"prompt_tokens":3}`},
		{"nothing but a comment", ": ping\n\n", "same", "{}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := withNote(c.unasked, c.note)
			if c.unasked == "same" {
				want = withNote(c.in, c.note)
			}
			if out, _ := run(false, []byte(c.in), atOnce); string(out) != want {
				t.Errorf("client did not ask:\n%q, expected\n%q", out, want)
			}
			if strings.TrimSpace(c.in) == strings.TrimSpace(last) {
				want = withNote(c.in, c.note)
			}
			if out, _ := run(true, []byte(c.in), atOnce); string(out) != want {
				t.Errorf("client asked:\n%q, expected\n%q", out, want)
			}
		})
	}
}

// An event without an end of which nothing is left is no broken stream: its note is the answer.
func TestUsageAloneWithoutAnEnd(t *testing.T) {
	out, whole := run(false, []byte("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3}}"), atOnce)
	if want := ":\n: spokegate-usage {\"prompt_tokens\":3}\n"; string(out) != want || !whole {
		t.Errorf("%q, whole %v, expected %q", out, whole, want)
	}
}

func TestBrokenOffInsideAnEvent(t *testing.T) {
	for in, want := range map[string]struct {
		out   string
		whole bool
	}{
		"data: {\"a\":1}\n\ndata: {\"b\":":  {"data: {\"a\":1}\n\n", false},
		"data: {\"a\":1}\n\ndata: {\"b\"\n": {"data: {\"a\":1}\n\n", false},
		"data: {\"a\":1}\n\ndata: [DONE]":   {"data: {\"a\":1}\n\n: spokegate-usage {\"terminal\":true}\ndata: [DONE]", true},
		"data: {\"a\":1}\n\ndata: {}\r":     {"data: {\"a\":1}\n\ndata: {}\r", true},
		"data: {\"a\":1}\n\n: pi":           {"data: {\"a\":1}\n\n: pi", true},
		"":                                  {"", true},
	} {
		want.out = strings.Replace(want.out, "\n\n", "\n"+noteMark+"{}\n\n", 1)
		if out, whole := run(false, []byte(in), atOnce); string(out) != want.out || whole != want.whole {
			t.Errorf("%q: %q whole %v, expected %+v", in, out, whole, want)
		}
	}
}

// An event above the bound passes unchanged, however it was cut, and the one after it is looked into again.
func TestLargeEvent(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		large := "data: {\"choices\":[{\"x\":\"" + strings.Repeat("y", maxEvent) + "\"}],\"usage\":{\"prompt_tokens\":1}}" + end + end
		small := "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":1}}" + end + end
		want := withNote(large, `{"prompt_tokens":1}`) + "data: {\"choices\":[{}]}" + end + end + "data: 1" + end + end
		in := []byte(large + small + "data: 1" + end + end)
		for _, size := range []int{1 << 30, 1 << 15, 4097, maxEvent, maxEvent + 1} {
			if out, _ := run(false, in, func(int) int { return size }); string(out) != want {
				t.Errorf("line end %q, pieces of %d: %d bytes, expected %d", end, size, len(out), len(want))
			}
		}
	}
}

// engineStream writes a stream as an engine would with and without our options: the oracle for what a client must get.
func engineStream(rnd *rand.Rand, client bool) (with, without []byte) {
	end := []string{"\n", "\r\n", "\r"}[rnd.Intn(3)]
	data := []string{"data: ", "data:"}[rnd.Intn(2)]
	usage := func(n int) string {
		return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}`,
			7+rnd.Intn(8)/7, n+7, n, rnd.Intn(8)/7, n/2)
	}
	both := func(s string) { with, without = append(with, s...), append(without, s...) }
	for n := range rnd.Intn(6) {
		switch rnd.Intn(6) {
		case 0:
			both(": ping" + end + end)
		case 1:
			both("event: x" + end)
		}
		text := []string{`a`, `\"usage\":{}`, "ü", `}],`, `\\`, ""}[rnd.Intn(6)]
		head := fmt.Sprintf(`"id":"x","choices":[{"index":0,"delta":{"content":"%s"}}]`, text)
		both(data)
		switch rnd.Intn(3) {
		case 0:
			with = append(with, "{"+head+","+usage(n)+"}"...)
		case 1:
			with = append(with, "{"+usage(n)+","+head+"}"...)
		case 2:
			with = append(with, "{"+head+`, `+usage(n)+"}"...)
		}
		without = append(without, "{"+head+"}"...)
		both(end + end)
	}
	last := data + `{"id":"x","choices":[],` + usage(9) + "}" + end + end
	with = append(with, last...)
	if client {
		without = append(without, last...)
	}
	both(data + "[DONE]" + end + end)
	return with, without
}

// Notes of ours as they stand in a stream, with what begins their line where nothing else does.
var (
	ourNote   = regexp.MustCompile(`(?:^:\n)?: spokegate-usage [^\n]*\n`)
	ourCRNote = regexp.MustCompile(`(?:^:\n|\n)(?:: spokegate-usage [^\n]*\n)+`)
)

// withoutNotes is what a client sees of a stream whose lines end with LF.
func withoutNotes(stream string) string { return ourNote.ReplaceAllString(stream, "") }

// Whatever the cuts: the same bytes come out, and but for our notes they are what the engine would have sent by itself.
func checkStream(t *testing.T, rnd *rand.Rand, client bool) {
	t.Helper()
	with, without := engineStream(rnd, client)
	whole, _ := run(client, with, atOnce)
	cut, _ := run(client, with, func(left int) int { return 1 + rnd.Intn(min(left, 40)) })
	if !bytes.Equal(whole, cut) {
		t.Fatalf("cuts change the bytes:\n%q\n%q", whole, cut)
	}
	note := ourNote
	if !bytes.Contains(with, []byte("\n")) {
		note = ourCRNote
	}
	if got := note.ReplaceAll(whole, nil); !bytes.Equal(got, without) {
		t.Fatalf("client (asked %v) gets\n%q, the engine would have sent\n%q, it sent\n%q", client, got, without, with)
	}
}

func TestStreamIsWhatTheEngineWouldHaveSent(t *testing.T) {
	for seed := range int64(3000) {
		rnd := rand.New(rand.NewSource(seed))
		checkStream(t, rnd, seed%2 == 0)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzSplits: of any bytes, any two cuts give the same output.
func FuzzSplits(f *testing.F) {
	for seed := range int64(8) {
		with, _ := engineStream(rand.New(rand.NewSource(seed)), false)
		f.Add(with, seed, seed%2 == 0)
	}
	f.Add([]byte("data: {\"choices\":[],\"usage\":{\ndata:}}\r\r\n\n\r"), int64(1), false)
	f.Add([]byte("data\ndata:\ndata: \n\n\n\r\n\r\r"), int64(2), true)
	f.Add([]byte("data: {\"usage\":{\"prompt_tokens\":{\"usage\":{}}},\"choices\":[1]}\n\n"), int64(3), true)
	f.Fuzz(func(t *testing.T, in []byte, seed int64, client bool) {
		rnd := rand.New(rand.NewSource(seed))
		whole, end := run(client, in, atOnce)
		cut, cutEnd := run(client, in, func(left int) int { return 1 + rnd.Intn(left) })
		ones, onesEnd := run(client, in, func(int) int { return 1 })
		if !bytes.Equal(whole, cut) || !bytes.Equal(whole, ones) || end != cutEnd || end != onesEnd {
			t.Errorf("%q:\n%q %v\n%q %v\n%q %v", in, whole, end, cut, cutEnd, ones, onesEnd)
		}
	})
}
