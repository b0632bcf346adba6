package scrape

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/spokegate/spokegate/enginemetrics"
	"github.com/spokegate/spokegate/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine answers as the test says: it stands for engines that make mistakes which no real one makes on purpose.
type engine struct {
	t       *testing.T
	addr    string
	server  *http.Server
	metrics atomic.Pointer[http.HandlerFunc]
	health  atomic.Int64 // status
}

func startEngine(t *testing.T, metrics http.HandlerFunc) *engine {
	e := &engine{t: t, addr: "127.0.0.1:0"}
	e.health.Store(http.StatusOK)
	e.metrics.Store(&metrics)
	e.start()
	t.Cleanup(e.stop)
	return e
}

func (e *engine) start() {
	var lis net.Listener
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if lis, err = net.Listen("tcp", e.addr); err == nil {
			break
		} else if time.Now().After(end) {
			e.t.Fatal(err)
		}
	}
	e.addr = lis.Addr().String()
	e.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			(*e.metrics.Load())(w, r)
			return
		}
		w.WriteHeader(int(e.health.Load()))
	})}
	server := e.server
	go func() { _ = server.Serve(lis) }()
}

func (e *engine) stop() { _ = e.server.Close() }

func page(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

func vllmPage(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../enginemetrics/testdata/vllm-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// patience is for what must come, on a machine that is busy.
const patience = 3 * time.Minute

// rig is a scraper that looks quickly, and a fleet.
type rig struct {
	*testing.T
	*Scraper
	fleet *fleet.Fleet
}

func newRig(t *testing.T) *rig {
	f := fleet.NewUnacknowledged()
	r := &rig{t, New(Config{Fleet: f, Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}), f}
	r.unit = 5 * time.Millisecond
	t.Cleanup(func() { r.Watch(context.Background(), nil) })
	return r
}

func (r *rig) join(name, addr, kind string) Target {
	r.Helper()
	t := Target{Worker: fleet.Worker{Name: name, Endpoint: "e", Addr: addr, Engine: kind, State: fleet.Starting}}
	if _, err := r.fleet.Join(t.Worker); err != nil {
		r.Fatal(err)
	}
	return t
}

// until waits for what is believed of a worker.
func (r *rig) until(name, what string, is func(fleet.Worker) bool) {
	r.Helper()
	var w fleet.Worker
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, w = range r.fleet.View().Workers {
			if w.Name == name && is(w) {
				return
			}
		}
	}
	r.Fatalf("%s is not %s: %+v, %+v", name, what, w, w.Status())
}

func ready(w fleet.Worker) bool { return w.State == fleet.Ready }

func TestAnEngineIsUnderstood(t *testing.T) {
	r := newRig(t)
	e := startEngine(t, page(vllmPage(t)))
	busy := startEngine(t, page("vllm:prompt_tokens_total 1\nvllm:num_requests_running 3\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.5\n"))
	r.Watch(t.Context(), []Target{r.join("a", e.addr, "vllm"), r.join("b", busy.addr, "attached")})
	r.until("a", "ready and known", func(w fleet.Worker) bool {
		l := w.Status().Load
		return ready(w) && w.BlockSize == 32 && w.Blocks == 131072 && w.Epoch == "1" && l != nil && *l == fleet.Load{} && !w.Status().At.IsZero()
	})
	r.until("b", "busy", func(w fleet.Worker) bool {
		l := w.Status().Load
		return ready(w) && l != nil && *l == fleet.Load{Running: 3, Waiting: 2, CacheUsedPermille: 500}
	})
	ranks := page("vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"1\"} 2\nvllm:num_requests_waiting{engine=\"1\"} 3\nvllm:prompt_tokens_total 1\n")
	busy.metrics.Store(&ranks)
	r.until("b", "of two ranks", func(w fleet.Worker) bool {
		st := w.Status()
		return st.Load != nil && *st.Load == fleet.Load{Running: 3, Waiting: 3} && slices.Equal(st.Ranks, []fleet.Load{{Running: 1}, {Running: 2, Waiting: 3}})
	})
	restarted := page(strings.Replace(vllmPage(t), "process_start_time_seconds 1.79594981379e+09", "process_start_time_seconds 1.8e+09", 1))
	e.metrics.Store(&restarted)
	r.until("a", "another run", func(w fleet.Worker) bool { return ready(w) && w.Epoch == "2" })
}

// TestMetricsDoNotDecide: whatever is wrong with a worker's metrics, it stays ready, its load is unknown, what it said of its
// cache holds on, and what is wrong is told.
func TestMetricsDoNotDecide(t *testing.T) {
	r := newRig(t)
	r.timeout = 300 * time.Millisecond
	good := page("vllm:prompt_tokens_total 1\nvllm:num_requests_running 3\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\n")
	e := startEngine(t, good)
	r.Watch(t.Context(), []Target{r.join("a", e.addr, "vllm")})
	r.until("a", "known", func(w fleet.Worker) bool { return w.Blocks == 100 })
	for name, c := range map[string]struct {
		metrics http.HandlerFunc
		want    string
	}{
		"late": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "metrics: GET /metrics: context deadline exceeded"},
		"late, having begun": {func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "metrics: GET /metrics: context deadline exceeded"},
		"refused":    {http.NotFound, ""},
		"failing":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "metrics: GET /metrics answers 500"},
		"elsewhere":  {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "metrics: GET /metrics answers 302"},
		"another's":  {page("go_goroutines 5\n"), "metrics: GET /metrics has none of vllm's metrics"},
		"unreadable": {page("vllm:prompt_tokens_total many\n"), "metrics: GET /metrics: vllm:prompt_tokens_total: its value is not a number"},
	} {
		e.metrics.Store(&c.metrics)
		r.until("a", name, func(w fleet.Worker) bool {
			return ready(w) && w.Status().Load == nil && strings.Join(w.Status().Degraded, "; ") == c.want && w.BlockSize == 16 && w.Blocks == 100
		})
		e.metrics.Store(&good)
		r.until("a", "well after "+name, func(w fleet.Worker) bool { return ready(w) && w.Status().Load != nil && len(w.Status().Degraded) == 0 })
	}
}

// TestALargePageIsBounded: it is given up, whatever is behind it.
func TestALargePageIsBounded(t *testing.T) {
	r := newRig(t)
	var sent atomic.Int64
	e := startEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		for chunk := []byte(strings.Repeat("# nothing\n", 10_000)); ; {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	r.timeout = time.Minute
	f := r.look(t.Context(), Target{Worker: fleet.Worker{Name: "a", Addr: e.addr, Engine: "vllm"}})
	if want := fmt.Sprintf("GET /metrics: metrics of more than %d bytes", enginemetrics.MaxPage); !f.answered || f.known || f.err == nil || f.err.Error() != want {
		t.Errorf("%+v", f)
	}
	if n := sent.Load(); n > 4*enginemetrics.MaxPage {
		t.Errorf("it sent %d bytes", n)
	}
}

// TestSilenceFails: an engine that says it does not serve, or does not answer, fails after a few looks and comes back by itself.
func TestSilenceFails(t *testing.T) {
	r := newRig(t)
	e := startEngine(t, http.NotFound)
	r.Watch(t.Context(), []Target{r.join("a", e.addr, "attached"), r.join("never", "127.0.0.1:1", "attached")})
	r.until("a", "ready", ready)
	e.health.Store(http.StatusServiceUnavailable)
	r.until("a", "failed", func(w fleet.Worker) bool {
		return w.State == fleet.Failed && w.Status().Reason == "GET /health answers 503" && !w.Status().At.IsZero()
	})
	e.health.Store(http.StatusNotFound) // it has no such page, and answers
	r.until("a", "back", func(w fleet.Worker) bool { return ready(w) && w.Epoch == "2" && w.Status().Reason == "" })
	e.stop()
	r.until("a", "failed", func(w fleet.Worker) bool {
		return w.State == fleet.Failed && strings.Contains(w.Status().Reason, "refused")
	})
	e.start()
	r.until("a", "back", func(w fleet.Worker) bool { return ready(w) && w.Epoch == "3" })
	r.until("never", "starting", func(w fleet.Worker) bool { return w.State == fleet.Starting && w.Status().Reason != "" })
}

// TestNothingIsSaidOfASuccessor: once a target is no more, what was found of it is told to nobody.
func TestNothingIsSaidOfASuccessor(t *testing.T) {
	r := newRig(t)
	e := startEngine(t, http.NotFound)
	target := Target{Worker: fleet.Worker{Name: "a", Endpoint: "e", Addr: e.addr, Engine: "attached", State: fleet.Starting}}
	for range 50 {
		leave, err := r.fleet.Join(target.Worker)
		if err != nil {
			t.Fatal(err)
		}
		r.Watch(t.Context(), []Target{target})
		r.until("a", "ready", ready)
		r.Watch(t.Context(), nil)
		leave()
		successor := target.Worker
		successor.Addr = "127.0.0.1:1"
		leave, err = r.fleet.Join(successor)
		if err != nil {
			t.Fatal(err)
		}
		if w := r.fleet.View().Workers[0]; w.State != fleet.Starting || w.Status().At != (time.Time{}) {
			t.Fatalf("%+v", w)
		}
		leave()
	}
}
