package test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// soakClients ask at once. A third of their requests are given up before the end.
const soakClients = 6

// tally is what a client knows of one request.
type tally struct {
	operation          string
	stream, big        bool
	verdict            verdict
	admission          string
	prompt, completion int64 // of a whole answer; completion -1: it told none
}

// soak is traffic of every kind, as long as it is not stopped.
type soak struct {
	u    *up
	quit context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	tallies []tally
}

func startSoak(u *up, seed uint64) *soak {
	ctx, cancel := context.WithCancel(context.Background())
	s := &soak{u: u, quit: cancel}
	for i := range soakClients {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		s.all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				x := s.ask(r, n%3 == 0)
				s.mu.Lock()
				s.tallies = append(s.tallies, x)
				s.mu.Unlock()
				wait := time.Duration(5+r.IntN(40)) * time.Millisecond
				if x.verdict == refused || x.verdict == cutOff {
					wait *= 10
				}
				pause(ctx, wait)
			}
		})
	}
	return s
}

// stop lets what runs come to its end.
func (s *soak) stop() []tally {
	s.quit()
	s.all.Wait()
	return s.tallies
}

// goesOn waits until n more answers came whole.
func (s *soak) goesOn(t testing.TB, n int) {
	t.Helper()
	whole := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, x := range s.tallies {
			if x.verdict == whole200 {
				n++
			}
		}
		return n
	}
	before := whole()
	eventually(t, factPatience, func() error {
		if now := whole(); now < before+n {
			return fmt.Errorf("%d more whole answers of %d", now-before, n)
		}
		return nil
	})
}

// ask sends one request of any operation, small or big, in one piece or streamed.
func (s *soak) ask(r *rand.Rand, leaves bool) tally {
	op := operations[r.IntN(len(operations))]
	x := tally{operation: op.name, stream: op.streams && r.IntN(3) > 0, big: r.IntN(12) == 0, completion: -1}
	var body map[string]any
	if err := json.Unmarshal([]byte(op.body), &body); err != nil {
		panic(err)
	}
	for _, name := range []string{"max_tokens", "max_output_tokens"} {
		if body[name] != nil {
			body[name] = 1 + r.IntN(90) + 300*b2i(leaves) // a second, which it will not stay for
		}
	}
	if x.stream {
		body["stream"] = true
		if r.IntN(2) == 0 && (op.name == "chat" || op.name == "completions") {
			body["stream_options"] = map[string]any{"include_usage": true}
		}
	}
	if text := "Hello there " + fmt.Sprint(r.IntN(1000)); op.name == "completions" {
		body["prompt"] = text + strings.Repeat(" and again", r.IntN(20_000)*b2i(x.big))
	} else if body["messages"] != nil {
		body["messages"] = []any{map[string]any{"role": "user", "content": text + strings.Repeat(" and again", r.IntN(20_000)*b2i(x.big))}}
	}
	text, _ := json.Marshal(body) // of plain values
	patience := callPatience
	if leaves {
		patience = time.Duration(1+r.IntN(250)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	got, err := protocols[r.IntN(2)].send(ctx, s.u.listen, post(s.u.key("soak"), op.path, string(text)))
	x.admission = got.admission()
	switch {
	case err != nil && leaves && time.Since(began) >= patience:
		x.verdict = leftIt
	case err != nil:
		x.verdict = cutOff
	case got.status != http.StatusOK:
		x.verdict = refused
	case x.stream && !strings.Contains(string(got.body), op.terminal):
		x.verdict = told
	default:
		x.verdict = whole200
		x.count(got.body)
	}
	return x
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// count reads what the answer says of its tokens, in the words of any operation: the last word counts.
func (x *tally) count(body []byte) {
	parts := []string{string(body)}
	if x.stream {
		parts = strings.Split(string(body), "\n")
	}
	for _, part := range parts {
		var say struct {
			Usage             map[string]any
			Response, Message struct{ Usage map[string]any }
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(part, "data: ")), &say) != nil {
			continue
		}
		for _, u := range []map[string]any{say.Usage, say.Response.Usage, say.Message.Usage} {
			for name, to := range map[string]*int64{"prompt_tokens": &x.prompt, "input_tokens": &x.prompt, "completion_tokens": &x.completion, "output_tokens": &x.completion} {
				if n, is := u[name].(float64); is {
					*to = int64(n)
				}
			}
			if n, is := u["input_tokens"].(float64); is && x.operation == "messages" { // which are those that were not in the cache
				found, _ := u["cache_read_input_tokens"].(float64)
				made, _ := u["cache_creation_input_tokens"].(float64)
				x.prompt = int64(n + found + made)
			}
		}
	}
}

// soaked is the summary of what clients saw.
func soaked(tallies []tally) string {
	verdicts, operations, streams, big := map[verdict]int{}, map[string]int{}, 0, 0
	for _, x := range tallies {
		verdicts[x.verdict]++
		operations[x.operation]++
		streams += b2i(x.stream)
		big += b2i(x.big)
	}
	var words []string
	for _, v := range slices.Sorted(maps.Keys(verdicts)) {
		words = append(words, fmt.Sprintf("%d %s", verdicts[v], v))
	}
	return fmt.Sprintf("%d requests (%v; %d streams, %d big): %s", len(tallies), operations, streams, big, strings.Join(words, ", "))
}

// agrees holds what clients saw against the records in Kafka that count: of each whole answer one usage with its tokens.
func (k *broker) agrees(tallies []tally) (told int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	messages, err := k.messages(ctx, "spokegate.usage")
	if err != nil {
		return 0, err
	}
	counts := map[string]*usagev1.Record{}
	for _, m := range messages {
		r, err := usage.ParseJSON(m.Value)
		if err != nil {
			return 0, err
		}
		if before := counts[r.Admission]; before == nil || usage.Wins(r, before) {
			counts[r.Admission] = r
		}
	}
	for _, x := range tallies {
		if x.verdict != whole200 {
			continue
		}
		r := counts[x.admission]
		if r == nil || r.Outcome != usage.OutcomeComplete || r.Operation != x.operation {
			return 0, fmt.Errorf("%+v: the client has it whole, and its usage is %v", x, r)
		}
		if x.completion < 0 && x.prompt == 0 {
			continue // it was not asked for
		}
		told++
		if r.GetPromptTokens() != x.prompt || r.GetCompletionTokens() != max(x.completion, 0) {
			return 0, fmt.Errorf("%+v: its usage is %s", x, usage.AppendJSON(nil, r))
		}
	}
	return told, nil
}
