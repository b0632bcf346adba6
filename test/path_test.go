package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// operations are the APIs, with a request that generates ten tokens where one generates.
var operations = []struct {
	name, path, body string
	streams          bool
	terminal         string // of a stream
}{
	{"chat", "/v1/chat/completions", `{"model":"sim-small","max_tokens":10,"messages":[{"role":"user","content":"Hello there"}]}`, true, "data: [DONE]"},
	{"completions", "/v1/completions", `{"model":"sim-small","max_tokens":10,"prompt":"Hello there"}`, true, "data: [DONE]"},
	{"responses", "/v1/responses", `{"model":"sim-small","max_output_tokens":10,"input":"Hello there"}`, true, "event: response.incomplete"},
	{"messages", "/v1/messages", `{"model":"sim-small","max_tokens":10,"messages":[{"role":"user","content":"Hello there"}]}`, true, "message_stop"},
	{"embeddings", "/v1/embeddings", `{"model":"sim-small","input":["Hello","there"]}`, false, ""},
}

func TestOperations(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		for _, op := range operations {
			for _, p := range protocols {
				t.Run(op.name+"/"+p.name, func(t *testing.T) {
					r := u.doOver(t, p, post(u.key("main"), op.path, op.body))
					if r.status != 200 || !json.Valid(r.body) {
						t.Fatalf("want 200 and JSON, got %v", r)
					}
					u.counted(t, r, op.name, false)
				})
				if op.streams {
					t.Run(op.name+"/stream/"+p.name, func(t *testing.T) {
						r := u.doOver(t, p, post(u.key("main"), op.path, streamed(op.body)))
						checkStream(t, r, op.terminal)
						u.counted(t, r, op.name, true)
					})
				}
			}
		}
	})
}

func streamed(body string) string { return strings.Replace(body, "{", `{"stream":true,`, 1) }

// checkStream wants whole events up to the last, and no usage that was not asked for.
func checkStream(t *testing.T, r reply, terminal string) {
	t.Helper()
	body := string(r.body)
	if r.status != 200 || !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("want a stream, got %v", r)
	}
	events := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	if last := events[len(events)-1]; !strings.Contains(last, terminal) {
		t.Errorf("want %q in the last event, got %q", terminal, last)
	}
	for _, e := range events {
		for line := range strings.Lines(e) {
			data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
			if ok && data != "[DONE]" && !json.Valid([]byte(data)) {
				t.Errorf("this is no JSON: %q", data)
			}
			if ok && terminal == "data: [DONE]" && strings.Contains(data, `"prompt_tokens"`) {
				t.Errorf("usage that nobody asked for: %q", data)
			}
		}
	}
}

// counted wants that all three journals tell of the request, and agree.
func (u *up) counted(t *testing.T, r reply, op string, stream bool) *usagev1.Record {
	t.Helper()
	rec := u.ledger.usage(t, r.admission())
	completion := int64(10)
	if op == "embeddings" {
		completion = 0
	}
	wrong := rec.GetKey() != "main" || rec.GetTeam() != "t1" || rec.GetModel() != "sim-small" || rec.GetEndpoint() != "sim" ||
		rec.GetOperation() != op || rec.GetStream() != stream || rec.GetOutcome() != usage.OutcomeComplete || rec.GetStatus() != 200 ||
		rec.GetCountedFrom() != usage.CountedEngine || rec.PromptTokens == nil || rec.GetPromptTokens() < 1 ||
		rec.CompletionTokens == nil || rec.GetCompletionTokens() != completion || rec.GetAttempt() != 1 || rec.GetRevision() == 0 ||
		rec.GetResponseBytes() != int64(len(r.body)) || len(rec.GetAnomalies()) > 0
	if wrong {
		t.Errorf("the usage record is %s; the body had %d bytes", usage.AppendJSON(nil, rec), len(r.body))
	}
	at, first, end := rec.GetAdmittedAt().AsTime(), rec.GetFirstByteAt().AsTime(), rec.GetEndedAt().AsTime()
	if first.Before(at) || end.Before(first) {
		t.Errorf("the times are out of order: admitted %v, first byte %v, end %v", at, first, end)
	}
	served := u.ledger.served(t, r.admission())
	if served.GetPromptTokens() != rec.GetPromptTokens() || served.GetCompletionTokens() != completion || served.GetOutcome() != usage.OutcomeComplete {
		t.Errorf("the shim's record is %s, the door's %s", usage.AppendJSON(nil, served), usage.AppendJSON(nil, rec))
	}
	e := u.ledger.get(r.admission())
	if len(e.admitted) != 1 || e.admitted[0].GetOutcome() != "" || e.admitted[0].GetKey() != "main" {
		t.Errorf("admitted: %v", e.admitted)
	}
	return rec
}

// TestUsageInStream wants usage where the client asked for it, as OpenAI sends it: once, in a last chunk without choices.
func TestUsageInStream(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		r := u.ok(t, post(u.key("main"), "/v1/chat/completions",
			`{"model":"sim-small","max_tokens":5,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"count me"}]}`))
		var seen []string
		for line := range strings.Lines(string(r.body)) {
			if data, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(data, `"prompt_tokens"`) {
				seen = append(seen, data)
			}
		}
		if len(seen) != 1 || !strings.Contains(seen[0], `"completion_tokens":5`) || !strings.Contains(seen[0], `"choices":[]`) {
			t.Errorf("want usage once, in a chunk without choices; got %q", seen)
		}
	})
}

func TestModels(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		for key, want := range map[string][]string{"main": {"sim-large", "sim-small"}, "small-only": {"sim-small"}} {
			r := u.ok(t, get(u.key(key), "/v1/models"))
			var list struct {
				Object string
				Data   []struct{ ID, Object string }
			}
			if err := json.Unmarshal(r.body, &list); err != nil || list.Object != "list" {
				t.Fatalf("%v: %v", err, r)
			}
			var got []string
			for _, m := range list.Data {
				got = append(got, m.ID)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s may use %v, and is told %v", key, want, got)
			}
			u.ledger.refused(r.admission()) // no flight, so no record
		}
		one := u.ok(t, get(u.key("main"), "/v1/models/sim-large"))
		if !strings.Contains(string(one.body), `"id":"sim-large"`) {
			t.Errorf("got %v", one)
		}
		wantRefusal(t, u.do(t, get(u.key("main"), "/v1/models/nothing")), "", 404, "model_not_found")
		wantRefusal(t, u.do(t, get(u.key("small-only"), "/v1/models/sim-large")), "", 403, "model_not_allowed")
		wantRefusal(t, u.do(t, get("sk-sg-nothing", "/v1/models")), "", 401, "invalid_api_key")
	})
}

// TestConversation wants each turn at the worker that holds the turns before, while other conversations run.
func TestConversation(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		for i := range 3 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				converse(t, u, fmt.Sprintf("conversation %d with %s: %s", i, picker, strings.Repeat("a long beginning, ", 40*(i+1))))
			})
		}
	})
}

func converse(t *testing.T, u *up, opening string) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	messages := []message{{"user", opening}}
	worker := ""
	for turn := range 4 {
		body, err := json.Marshal(map[string]any{"model": "sim-small", "max_tokens": 20, "messages": messages})
		if err != nil {
			t.Fatal(err)
		}
		r := u.ok(t, post(u.key("main"), "/v1/chat/completions", string(body)))
		var answer struct {
			Choices []struct{ Message message }
			Usage   struct {
				Prompt  int64 `json:"prompt_tokens"`
				Details struct {
					Cached int64 `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal(r.body, &answer); err != nil || len(answer.Choices) != 1 {
			t.Fatalf("%v: %v", err, r)
		}
		rec := u.ledger.usage(t, r.admission())
		if turn > 0 {
			if rec.GetWorker() != worker {
				t.Errorf("turn %d went to %s, the turns before to %s", turn, rec.GetWorker(), worker)
			}
			if cached := answer.Usage.Details.Cached; cached < int64(len(opening)/4/16*16) || rec.GetCachedTokens() != cached {
				t.Errorf("turn %d: the engine had %d of %d tokens cached, and the record says %d", turn, cached, answer.Usage.Prompt, rec.GetCachedTokens())
			}
		}
		worker = rec.GetWorker()
		messages = append(messages, answer.Choices[0].Message, message{"user", fmt.Sprintf("and what about turn %d?", turn)})
	}
}

// TestSpread wants that requests with nothing in common do not all go to one worker.
func TestSpread(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		workers := map[string]int{}
		for i := range 12 {
			r := u.ok(t, post(u.key("main"), "/v1/chat/completions", fmt.Sprintf(`{"model":"sim-small","max_tokens":1,"messages":[{"role":"user","content":"%d %s"}]}`,
				i, strings.Repeat(fmt.Sprintf("%s subject %d. ", picker, i), 20))))
			workers[u.ledger.usage(t, r.admission()).GetWorker()]++
		}
		if len(workers) < 2 {
			t.Errorf("twelve requests went to %v", workers)
		}
	})
}

// madeBy is how many contexts the door has made by mac, or by signature.
func (u *up) madeBy(t testing.TB, how string) (n int) {
	t.Helper()
	_, after, ok := strings.Cut(u.page(t, "/metrics"), fmt.Sprintf("\nspokegate_contexts_total{how=%q} ", how))
	if _, err := fmt.Sscan(after, &n); !ok || err != nil {
		t.Fatalf("nothing counts contexts by %s", how)
	}
	return n
}

// TestContextsAreByMac wants contexts by MAC where the admission names the workers, and signed ones where a picker does after it.
func TestContextsAreByMac(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u, how := simulated(t, picker), "mac"
		if picker == "ext_proc" {
			how = "signature"
		}
		before := u.madeBy(t, how)
		u.ok(t, post(u.key("main"), operations[0].path, operations[0].body))
		if after := u.madeBy(t, how); after <= before {
			t.Errorf("%d by %s before, %d after", before, how, after)
		}
		if n := u.madeBy(t, "mac"); picker == "ext_proc" && n != 0 {
			t.Errorf("%d by MAC, and nobody had named a worker", n)
		}
	})
}

// TestClientRequestID wants the client's own id kept aside, and never taken for ours.
func TestClientRequestID(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		r := u.ok(t, post(u.key("main"), "/v1/embeddings", operations[4].body, field{"x-request-id", "mine-17"}))
		if r.admission() == "mine-17" {
			t.Fatal("the client chose the admission's id")
		}
		if rec := u.ledger.usage(t, r.admission()); rec.GetClientRequestId() != "mine-17" {
			t.Errorf("client_request_id is %q", rec.GetClientRequestId())
		}
		forged := u.ok(t, post(u.key("main"), "/v1/embeddings", operations[4].body, field{"x-spokegate-client-request-id", "forged"}))
		if rec := u.ledger.usage(t, forged.admission()); rec.GetClientRequestId() != "" {
			t.Errorf("client_request_id is %q, which the client wrote into the door's own header", rec.GetClientRequestId())
		}
	})
}
