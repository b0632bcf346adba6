package openai

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// FuzzScan holds Scan against encoding/json: what it accepts, encoding/json reads the same way, by exact and by case-blind
// names; what encoding/json refuses, it refuses.
func FuzzScan(f *testing.F) {
	for _, c := range loadCases[requestCase](f, "requests.yaml") {
		if c.Sent != nil {
			f.Add([]byte(*c.Sent), uint8(Chat))
		}
	}
	for _, s := range []string{
		`{"model":"m","stream":true,"stream_options":{"include_usage":true},"n":2,"max_tokens":5}`,
		`{"mod\u0065l":"\ud83d\ude00","\u212a":[{"a":[-1.5e+3,null]}],"ſ":"\udc00"}`,
		"{\"model\":\"é\u2028\x7f\",\"a\":\"\xff\"}", "\uFEFF{}", `{"model":"m","a":[[[[[[]]]]]]}`,
	} {
		f.Add([]byte(s), uint8(Responses))
	}
	f.Fuzz(func(t *testing.T, body []byte, op uint8) {
		r, err := Scan(Op(op%uint8(KeyUsage+1)), body)
		if err != nil {
			if err.Status != 400 || !utf8.Valid(err.Body(Chat)) || !json.Valid(err.Body(Chat)) {
				t.Errorf("refused with %+v", err)
			}
			return
		}
		if !utf8.Valid(body) {
			t.Fatal("accepted what is not UTF-8")
		}
		agree(t, r, body)
		if r.Model == "" || len(r.Members) > MaxMembers {
			t.Errorf("out of bounds: %+v", r)
		}
	})
}

// FuzzMeter: any split is no split, counts stay in bounds, and valid JSON is always read whole.
func FuzzMeter(f *testing.F) {
	for _, c := range loadCases[usageCase](f, "usage.yaml") {
		f.Add(bytes.Join(asBytes(c.pieces()), nil), uint8(c.op(f)), c.JSON == nil, uint16(7))
	}
	for _, c := range meterCases {
		f.Add([]byte(c.sent), uint8(c.op), !c.json, uint16(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, n uint8, sse bool, cut uint16) {
		op := Op(n % uint8(KeyUsage+1))
		whole := meter(op, sse, string(data))
		step := int(cut)%(len(data)+1) + 1
		if diff := cmp.Diff(whole, inSteps(op, sse, data, step)); diff != "" {
			t.Errorf("in steps of %d: %s", step, diff)
		}
		if diff := cmp.Diff(whole, bytewise(op, sse, string(data))); diff != "" {
			t.Errorf("byte by byte: %s", diff)
		}
		checkBounds(t, whole, sse)
		if !sse && whole.Terminal != (len(data) > 0 && json.Valid(data)) && json.Valid(data) {
			t.Errorf("valid JSON was not read whole: %s", describe(whole))
		}
	})
}

// FuzzUnquote: never panics on anything, and agrees with encoding/json on what is a JSON string.
func FuzzUnquote(f *testing.F) {
	for _, s := range []string{`"a"`, `"\"`, `"\u"`, `"\uX"`, `"12345678\`, `"\ud83d\ude00\ud83d"`, `"\`, `"\u12"`, `{"a":[1,"b"]}`, `[{`, `{"a" 1`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		visited := 0
		Each(raw, func(_, v []byte) bool { visited += len(v); return true })
		if visited > len(raw) {
			t.Errorf("Each visited %d bytes of %d", visited, len(raw))
		}
		got := string(Unquote(nil, raw))
		var want string
		if len(raw) == 0 || raw[0] != '"' || raw[len(raw)-1] != '"' || !utf8.Valid(raw) || json.Unmarshal(raw, &want) != nil {
			return
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func asBytes(pieces []string) [][]byte {
	var out [][]byte
	for _, p := range pieces {
		out = append(out, []byte(p))
	}
	return out
}

func inSteps(op Op, sse bool, data []byte, step int) Report {
	m := NewMeter(op, sse)
	for len(data) > 0 {
		n := min(step, len(data))
		m.Write(data[:n])
		data = data[n:]
	}
	return m.Close()
}

func checkBounds(t *testing.T, r Report, sse bool) {
	t.Helper()
	for _, n := range []*int64{r.Usage.Prompt, r.Usage.Cached, r.Usage.Completion, r.Usage.Reasoning} {
		if n != nil && (*n < 0 || *n > maxCount) {
			t.Errorf("a count of %d", *n)
		}
	}
	if r.Usage.Cached != nil && r.Usage.Prompt != nil && *r.Usage.Cached > *r.Usage.Prompt {
		t.Error("cached above prompt")
	}
	if !sse && r.Events != 0 || r.UpstreamCut && !r.Failed {
		t.Errorf("report contradicts itself: %s", describe(r))
	}
}
