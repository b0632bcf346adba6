package openai

import "testing"

func TestSplittable(t *testing.T) {
	for _, c := range []struct {
		op   Op
		body string
		want bool
	}{
		{Chat, `{"model":"m","messages":[]}`, true},
		{Chat, `{"model":"m","messages":[],"n":1,"stream":true,"echo":null}`, true},
		{Chat, `{"model":"m","messages":[],"n":2}`, false},
		{Chat, `{"model":"m","messages":[],"prompt_logprobs":1}`, false},
		{Chat, `{"model":"m","messages":[],"kv_transfer_params":{}}`, false},
		{Chat, `{"model":"m","messages":[],"kv_transfer_params":null}`, true},
		{Completions, `{"model":"m","prompt":"x"}`, true},
		{Completions, `{"model":"m","prompt":["x"]}`, false},
		{Completions, `{"model":"m","prompt":[1,2]}`, false},
		{Completions, `{"model":"m","prompt":"x","best_of":2}`, false},
		{Completions, `{"model":"m","prompt":"x","echo":true}`, false},
		{Embeddings, `{"model":"m","input":"x"}`, false},
	} {
		q, refusal := Scan(c.op, []byte(c.body))
		if refusal != nil {
			t.Fatalf("%s: %v", c.body, refusal)
		}
		if got := q.Splittable([]byte(c.body)); got != c.want {
			t.Errorf("%s: %v, want %v", c.body, got, c.want)
		}
	}
}
