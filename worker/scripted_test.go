package worker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// scriptedEngine is an engine's HTTP side that does as it is told, and counts as vLLM does.
type scriptedEngine struct {
	server *httptest.Server

	mu                 sync.Mutex
	status             int           // of a generation; 0: 200
	hang               bool          // generations do not answer
	only               string        // the one path that is known; "": all
	probes, reads      int           // generations and readings that came
	prompt, completion int64         // counted
	running, waiting   int           // told
	cache              float64       // told
	preempted          int64         // told
	page               string        // more of /metrics
	release            chan struct{} // closed at the end
}

func newScripted(t *testing.T) *scriptedEngine {
	t.Helper()
	e := &scriptedEngine{release: make(chan struct{})}
	e.server = httptest.NewServer(e)
	t.Cleanup(func() {
		close(e.release)
		e.server.Close()
	})
	return e
}

func (e *scriptedEngine) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func (e *scriptedEngine) asked() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.probes
}

func (e *scriptedEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		e.generate(w, r)
	case r.URL.Path == "/metrics":
		e.mu.Lock()
		defer e.mu.Unlock()
		e.reads++
		fmt.Fprintf(w, "# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total{engine=\"0\"} %d\n"+
			"# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{engine=\"0\"} %d\n"+
			"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running %d\n# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting %d\n"+
			"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc %g\n# TYPE vllm:num_preemptions_total counter\nvllm:num_preemptions_total %d\n%s",
			e.prompt, e.completion, e.running, e.waiting, e.cache, e.preempted, e.page)
	case r.URL.Path == "/v1/models":
		fmt.Fprint(w, `{"object":"list","data":[{"id":"their-model"}]}`)
	}
}

func (e *scriptedEngine) generate(w http.ResponseWriter, r *http.Request) {
	var q struct{ Model string }
	_ = json.NewDecoder(r.Body).Decode(&q)
	e.mu.Lock()
	e.probes++
	status, hang, known := e.status, e.hang, e.only == "" || e.only == r.URL.Path
	if status == 0 && !hang && known {
		e.prompt, e.completion = e.prompt+2, e.completion+1
	}
	e.mu.Unlock()
	switch {
	case hang:
		select {
		case <-r.Context().Done():
		case <-e.release:
		}
	case !known:
		http.Error(w, "no such path", http.StatusNotFound)
	case status != 0:
		http.Error(w, "no: "+q.Model, status)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[],"model":%q,"usage":{"prompt_tokens":2,"completion_tokens":1}}`, q.Model)
	}
}

// watchedEngine is a scripted engine whose own word is always that it is up; started again it is another run.
type watchedEngine struct {
	*fakeEngine
	speech   dialect
	restarts chan string
}

func (e *watchedEngine) speaks() dialect { return e.speech }

func (e *watchedEngine) restart(reason string) {
	e.restarts <- reason
	e.lives <- failed(causeHung, reason)
	e.lives <- Life{State: workerv1.State_STATE_STARTING, Description: Description{Epoch: "e2"}}
	e.lives <- Life{State: workerv1.State_STATE_READY, Description: Description{Epoch: "e2"}}
}

// hurried is a watch for tests.
var hurried = Watch{Every: 20 * time.Millisecond, Idle: -1, Hung: patience, Journal: time.Hour, again: 20 * time.Millisecond}

// watched is a shim before a scripted engine. It need not become ready.
func watched(t *testing.T, e *scriptedEngine, watch Watch) (*shim, *watchedEngine) {
	t.Helper()
	engine := &watchedEngine{newFakeEngine(t, e.server.URL), vllmSpeech, make(chan string, 8)}
	engine.lives = make(chan Life, 8)
	return startShim(t, newDoor(t, "door-1"), "", func(c *Config) { c.Engine, c.Watch = engine, watch }), engine
}

// kinds of records in a journal, in order.
func (j *journal) ofKind(kind string) (found []*usagev1.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.records {
		if r.Kind == kind {
			found = append(found, r)
		}
	}
	return found
}

func (j *journal) moments() (all []string) {
	for _, r := range j.ofKind("engine") {
		all = append(all, fmt.Sprintf("%s/%s %d+%d", r.EngineEpoch, r.Engine.Moment, r.Engine.GetPromptTokens(), r.Engine.GetCompletionTokens()))
	}
	return all
}
