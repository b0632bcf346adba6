package openai

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asNoted is what a note tells of a report.
func asNoted(r Report) Report {
	if r.CountedFrom != countedEvents {
		r.Events = 0
	}
	return r
}

func TestNote(t *testing.T) {
	for _, c := range []struct {
		op     Op
		stream bool
		sent   string
		size   int64
		want   string
	}{
		{Chat, true, "", 0, `{}`},
		{Chat, true, a1 + a1, 0, `{"events":2}`},
		{Chat, true, a1 + choiceChunk("0", "3"), 0, `{"prompt_tokens":7,"completion_tokens":3}`},
		{Chat, true, choiceChunk("0", "1") + a1 + a1 + done, 0, `{"prompt_tokens":7,"completion_tokens":1,"terminal":true}`},
		{Chat, true, choiceChunk("0", "1") + a1 + a1, 0, `{"prompt_tokens":7,"events":3}`},
		{Chat, true, usageChunk(`{"prompt_tokens":7}`), 0, `{"prompt_tokens":7}`},
		{Chat, false, `{"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":9},"completion_tokens_details":{"reasoning_tokens":1}}}`, 812,
			`{"prompt_tokens":7,"cached_tokens":7,"completion_tokens":3,"reasoning_tokens":1,"terminal":true,"anomalies":["cached_above_prompt"],"bytes":812}`},
		{Embeddings, false, `{"usage":{"prompt_tokens":7}}`, 29, `{"prompt_tokens":7,"completion_tokens":0,"terminal":true,"bytes":29}`},
		{Embeddings, false, `{}`, 2, `{"terminal":true,"bytes":2}`},
		{Messages, true, "event: error\ndata: {\"error\":{\"code\":\"upstream_cut\"}}\n\n", 0, `{"failed":true}`},
		{Chat, true, "data: {\"error\":{\"code\":\"upstream_cut\"}}\n\n", 0, `{"failed":true,"cut":true}`},
		{Chat, true, "data: x\n\n" + usageChunk(`{"prompt_tokens":-7}`), 0, `{"anomalies":["bad_usage","bad_json"]}`},
	} {
		r := meter(c.op, c.stream, c.sent)
		got := string(AppendNote(nil, &r, c.size))
		if got != c.want && c.op != Messages {
			t.Errorf("%v %q:\n%s, want\n%s", c.op, c.sent, got, c.want)
		}
	}
}

// TestReadNote: of anything, what can be believed.
func TestReadNote(t *testing.T) {
	for note, want := range map[string]string{
		``:                         "? ? ? ? none events=0 !bad_usage",
		`null`:                     "? ? ? ? none events=0 !bad_usage",
		`stream`:                   "? ? ? ? none events=0 !bad_usage",
		`{}`:                       "? ? ? ? none events=0",
		` {"prompt_tokens" : 7 } `: "7 ? ? ? engine events=0",
		`{"prompt_tokens":7`:       "7 ? ? ? engine events=0 !bad_usage",
		`{"prompt_tokens":7}}`:     "7 ? ? ? engine events=0 !bad_usage",
		`{"prompt_tokens":7,"new":[{"a":{}}],"completion_tokens":3}`:        "7 ? 3 ? engine events=0",
		`{"prompt_tokens":7,"prompt_tokens":8}`:                             "8 ? ? ? engine events=0",
		`{"prompt_tokens":7,"completion_tokens":3,"events":9}`:              "7 ? 3 ? engine events=0",
		`{"prompt_tokens":7,"events":9,"reasoning_tokens":10}`:              "7 ? 9 9 events events=9 !reasoning_above_completion",
		`{"prompt_tokens":7,"cached_tokens":8}`:                             "7 7 ? ? engine events=0 !cached_above_prompt",
		`{"prompt_tokens":-1,"completion_tokens":3}`:                        "? ? 3 ? engine events=0 !bad_usage",
		`{"prompt_tokens":1.5,"completion_tokens":3}`:                       "? ? 3 ? engine events=0 !bad_usage",
		`{"prompt_tokens":1e2,"completion_tokens":3}`:                       "? ? 3 ? engine events=0 !bad_usage",
		`{"prompt_tokens":9007199254740992,"completion_tokens":3}`:          "? ? 3 ? engine events=0 !bad_usage",
		`{"prompt_tokens":9007199254740991,"completion_tokens":3}`:          "9007199254740991 ? 3 ? engine events=0",
		`{"prompt_tokens":"7","completion_tokens":null,"cached_tokens":[]}`: "? ? ? ? none events=0 !bad_usage",
		`{"events":-1}`: "? ? ? ? none events=0 !bad_usage",
		`{"terminal":true,"failed":false,"cut":true}`: "? ? ? ? none events=0 terminal failed upstream_cut",
		`{"terminal":1}`: "? ? ? ? none events=0 !bad_usage",
		`{"anomalies":["bad_json","bad_json","reasoning_above_completion"]}`: "? ? ? ? none events=0 !bad_json !reasoning_above_completion",
		`{"anomalies":["bad_json","odd"]}`:                                   "? ? ? ? none events=0 !bad_usage !bad_json",
		`{"anomalies":"bad_json"}`:                                           "? ? ? ? none events=0 !bad_usage",
		`{"anomalies":[{}]}`:                                                 "? ? ? ? none events=0 !bad_usage",
		`{"bytes":7}`:                                                        "? ? ? ? none events=0 bytes=7",
		`{"bytes":-7}`:                                                       "? ? ? ? none events=0 !bad_usage",
	} {
		r, size := ReadNote(Chat, []byte(note))
		got := describe(r)
		if size != 0 {
			got += " bytes=" + string(appendCount(nil, &size))
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", note, got, want)
		}
	}
}

// TestNotesOfAllReports: what is read of a note is the report that it was made of, at any cut of any response.
func TestNotesOfAllReports(t *testing.T) {
	check := func(op Op, sse bool, m *Meter) {
		r := m.Report()
		note := AppendNote(nil, &r, 0)
		if fast := m.AppendNote(nil); string(fast) != string(note) || !json.Valid(note) {
			t.Fatalf("the meter's own note is %s, not %s", fast, note)
		}
		got, _ := ReadNote(op, note)
		if diff := cmp.Diff(asNoted(r), got); diff != "" {
			t.Fatalf("%v, stream %v: %s: %s", op, sse, note, diff)
		}
	}
	for _, c := range meterCases {
		for op := Unknown; op <= KeyUsage; op++ {
			for _, sse := range []bool{true, false} {
				m := NewMeter(op, sse)
				for i := range c.sent {
					m.Write([]byte(c.sent[i : i+1]))
					check(op, sse, m)
				}
				m.Close()
				check(op, sse, m)
			}
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		m := NewMeter(Chat, true)
		m.Write([]byte(randomStream(rng)))
		check(Chat, true, m)
	}
}

// TestNotesAreShort: the longest that there can be.
func TestNotesAreShort(t *testing.T) {
	most := count{maxCount, true}
	for _, from := range []string{countedEngine, countedEvents} {
		a := account{prompt: most, cached: most, completion: most, reasoning: most, events: maxCount, from: from,
			terminal: true, failed: true, cut: true, doubts: 1<<len(doubtNames) - 1}
		line := ": " + UsageComment + string(a.append(nil, 0)) + "\n\n"
		if len(line) > MaxNote || !strings.Contains(line, "reasoning_above_completion") {
			t.Errorf("%d bytes: %s", len(line), line)
		}
		if whole := a.append(nil, maxCount); len(whole) > MaxNote {
			t.Errorf("%d bytes: %s", len(whole), whole)
		}
	}
}

// FuzzNote: whatever comes, its report is one that a note can tell again.
func FuzzNote(f *testing.F) {
	f.Add([]byte(`{"prompt_tokens":7,"cached_tokens":8,"completion_tokens":3,"reasoning_tokens":1,"terminal":true,"anomalies":["bad_usage"],"bytes":812}`), uint8(Chat))
	f.Add([]byte(`{"events":3,"reasoning_tokens":9,"failed":true,"cut":true,"x":{"events":[{}]}}`), uint8(Embeddings))
	f.Add([]byte(`{"anomalies":["\u0062ad_json",[1],"bad_json"],"prompt_tokens":1e3`), uint8(Messages))
	f.Fuzz(func(t *testing.T, note []byte, n uint8) {
		op := Op(n % uint8(KeyUsage+1))
		r, size := ReadNote(op, note)
		checkBounds(t, r, true)
		if size < 0 || size > maxCount || !json.Valid(note) && !strings.Contains(strings.Join(r.Anomalies, " "), "bad_usage") {
			t.Errorf("%q: size %d, %s", note, size, describe(r))
		}
		again, same := ReadNote(op, AppendNote(nil, &r, size))
		if diff := cmp.Diff(r, again); diff != "" || size != same {
			t.Errorf("%q: size %d, then %d: %s", note, size, same, diff)
		}
	})
}
