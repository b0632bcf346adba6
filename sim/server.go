package sim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Sim is one simulated engine: an http.Handler.
type Sim struct {
	cfg      Config
	clock    *clock
	caches   []*cache // by rank
	accounts *accounts
	metrics  *metrics
	mux      *http.ServeMux
	born     int64 // Unix seconds
}

// Info is what GET /sim/info answers.
type Info struct {
	Engine    string   `json:"engine"` // "simulator"
	BlockSize int      `json:"block_size"`
	Blocks    int      `json:"blocks"` // of all ranks
	Cached    int      `json:"cached_blocks"`
	Models    []string `json:"models"`
}

// New makes an engine that serves nothing yet.
func New(cfg Config) (*Sim, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Sim{cfg: cfg, clock: newClock(cfg.Rates), accounts: newAccounts(cfg.KeepRequests), born: time.Now().Unix()}
	s.metrics = newMetrics(s.clock)
	for range cfg.Ranks {
		s.caches = append(s.caches, newCache(cfg.Rates.CacheBlocks, s.metrics.evicted.Inc))
	}
	s.mux = s.routes()
	return s, nil
}

func (s *Sim) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for path, serve := range map[string]operation{
		"/v1/chat/completions": s.chat,
		"/v1/completions":      s.completions,
		"/v1/embeddings":       s.embeddings,
		"/v1/responses":        s.responses,
		"/v1/messages":         s.messages,
	} {
		mux.HandleFunc("POST "+path, s.operation(path, serve))
	}
	mux.HandleFunc("GET /v1/models", s.listModels)
	mux.HandleFunc("GET /v1/models/{id...}", s.showModel)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": "ok", "engine": "simulator"})
	})
	mux.HandleFunc("GET /sim/info", func(w http.ResponseWriter, _ *http.Request) {
		cached := 0
		for _, c := range s.caches {
			cached += c.len()
		}
		reply(w, http.StatusOK, Info{"simulator", BlockTokens, s.cfg.Ranks * s.cfg.Rates.CacheBlocks, cached, s.names()})
	})
	mux.HandleFunc("GET /sim/requests", s.accounts.serve)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, r.URL.Path, &refusal{http.StatusNotFound, "unknown_url", "", "no such path on this simulator: " + r.Method + " " + r.URL.Path})
	})
	return mux
}

// ServeHTTP answers one request.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "spokegate-simulator")
	s.mux.ServeHTTP(w, r)
}

// operation is one API: it reads the body, and answers or refuses. Other errors mean that the client has left.
type operation func(w http.ResponseWriter, r *http.Request, e *entry, body []byte) error

// operation keeps the account around an API.
func (s *Sim) operation(path string, serve operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, refused := s.readBody(w, r)
		if refused != nil {
			fail(w, path, refused)
			return
		}
		e := &entry{id: r.Header.Get("X-Request-Id"), path: path, started: time.Now()}
		if e.rank, refused = s.rankOf(r); refused != nil {
			fail(w, path, refused)
			return
		}
		s.accounts.open(e)
		switch err := serve(w, r, e, body).(type) {
		case nil:
			s.accounts.close(e, http.StatusOK, false)
			s.metrics.complete.Inc()
		case *refusal:
			s.accounts.close(e, err.status, false)
			s.metrics.refusedOnes.Inc()
			fail(w, path, err)
		default:
			s.accounts.close(e, http.StatusOK, true)
			s.metrics.cut.Inc()
		}
	}
}

func (s *Sim) serves(model string) bool {
	return len(s.cfg.Models) == 0 || slices.Contains(s.cfg.Models, model)
}

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// names are what is listed: an engine that serves every name lists one.
func (s *Sim) names() []string {
	if len(s.cfg.Models) == 0 {
		return []string{"simulator"}
	}
	return s.cfg.Models
}

func (s *Sim) listModels(w http.ResponseWriter, _ *http.Request) {
	list := []modelObject{}
	for _, m := range s.names() {
		list = append(list, modelObject{m, "model", s.born, "simulator"})
	}
	reply(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

func (s *Sim) showModel(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !s.serves(id) {
		fail(w, r.URL.Path, noModel(id))
		return
	}
	reply(w, http.StatusOK, modelObject{id, "model", s.born, "simulator"})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func isMessages(path string) bool { return strings.HasPrefix(path, "/v1/messages") }
