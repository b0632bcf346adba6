package openai

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// read tells what stands in a whole answer at the paths of usage, as another reader of JSON finds it.
func (t *Told) read(answer any) {
	for _, path := range UsagePaths() {
		at := answer
		for name := range strings.SplitSeq(path, ".") {
			object, _ := at.(map[string]any)
			at = object[name]
		}
		switch v := at.(type) {
		case nil:
		case float64:
			t.Number(path, v)
		default:
			t.Other(path)
		}
	}
}

// TestToldIsAsMetered: what is told of an answer makes the report that a meter makes of its bytes.
func TestToldIsAsMetered(t *testing.T) {
	for _, answer := range []string{
		`{}`, `[]`, `{"usage":null}`, `{"usage":{}}`,
		`{"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`,
		`{"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":2}}}`,
		`{"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":4}}}`,
		`{"usage":{"prompt_tokens":7,"completion_tokens":null,"prompt_tokens_details":null}}`,
		`{"usage":{"prompt_tokens":0,"completion_tokens":9007199254740991}}`,
		`{"usage":{"prompt_tokens":-1,"completion_tokens":3}}`,
		`{"usage":{"prompt_tokens":7.5,"completion_tokens":3}}`,
		`{"usage":{"prompt_tokens":90071992547409930,"completion_tokens":3}}`,
		`{"usage":{"prompt_tokens":"7","completion_tokens":true}}`,
		`{"usage":{"input_tokens":7,"output_tokens":3,"input_tokens_details":{"cached_tokens":5},"output_tokens_details":{"reasoning_tokens":2}}}`,
		`{"usage":{"input_tokens":7,"output_tokens":3,"cache_read_input_tokens":100,"cache_creation_input_tokens":20}}`,
		`{"prompt_tokens":7,"choices":[{"usage":{"prompt_tokens":7}}]}`,
	} {
		for _, op := range []Op{Chat, Completions, Embeddings, Responses, Messages} {
			m := NewMeter(op, false)
			m.Write([]byte(answer))
			want := m.Close()
			var value any
			if err := json.Unmarshal([]byte(answer), &value); err != nil {
				t.Fatal(err)
			}
			told := NewTold(op)
			told.read(value)
			if got := told.Report(true); !reflect.DeepEqual(got, want) {
				t.Errorf("%v of %s: told %+v, metered %+v", op, answer, got, want)
			}
		}
	}
}

// TestEveryPathCounts: each is a count of some operation.
func TestEveryPathCounts(t *testing.T) {
	for _, path := range UsagePaths() {
		found := false
		for _, op := range []Op{Chat, Responses, Messages} {
			found = found || NewTold(op).slot(path) < counters
		}
		if !found {
			t.Errorf("%s is no count of any operation", path)
		}
	}
	told := NewTold(Chat)
	told.Unread()
	if r := told.Report(true); r.Terminal || !reflect.DeepEqual(r.Anomalies, []string{"bad_json"}) || r.CountedFrom != "none" {
		t.Errorf("of what is no JSON: %+v", r)
	}
}
