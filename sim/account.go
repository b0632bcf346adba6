package sim

import (
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// entry is the account of one request. The counters are written while others read.
type entry struct {
	id, path    string
	model       string
	stream      bool
	rank        int
	started     time.Time
	transferred atomic.Bool // another engine computed the prompt
	prompt      atomic.Int64
	cached      atomic.Int64
	generated   atomic.Int64
	end         atomic.Pointer[ending]
}

type ending struct {
	at     time.Time
	status int
	cut    bool
}

// RequestAccount is what GET /sim/requests tells of one request.
type RequestAccount struct {
	ID              string     `json:"id"` // x-request-id
	Path            string     `json:"path"`
	Model           string     `json:"model"`
	Stream          bool       `json:"stream"`
	Rank            int        `json:"rank"`        // data-parallel
	Transferred     bool       `json:"transferred"` // another engine computed the prompt
	PromptTokens    int64      `json:"prompt_tokens"`
	CachedTokens    int64      `json:"cached_tokens"`
	GeneratedTokens int64      `json:"generated_tokens"`
	Running         bool       `json:"running"`
	Cut             bool       `json:"cut"`    // the client left before the end
	Status          int        `json:"status"` // 0 while running
	StartedAt       time.Time  `json:"started_at"`
	EndedAt         *time.Time `json:"ended_at"`
}

func (e *entry) account() RequestAccount {
	a := RequestAccount{
		ID: e.id, Path: e.path, Model: e.model, Stream: e.stream, Rank: e.rank, Transferred: e.transferred.Load(), StartedAt: e.started, Running: true,
		PromptTokens: e.prompt.Load(), CachedTokens: e.cached.Load(), GeneratedTokens: e.generated.Load(),
	}
	if end := e.end.Load(); end != nil {
		a.Running, a.Cut, a.Status, a.EndedAt = false, end.cut, end.status, &end.at
	}
	return a
}

// accounts are the requests that run and the last ones that ended.
type accounts struct {
	keep int

	mu      sync.Mutex
	running map[*entry]struct{}
	ended   []*entry // a ring, next is the oldest when full
	next    int
}

func newAccounts(keep int) *accounts {
	return &accounts{keep: keep, running: map[*entry]struct{}{}}
}

func (a *accounts) open(e *entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running[e] = struct{}{}
}

func (a *accounts) close(e *entry, status int, cut bool) {
	e.end.Store(&ending{at: time.Now(), status: status, cut: cut})
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, e)
	if len(a.ended) < a.keep {
		a.ended = append(a.ended, e)
		return
	}
	a.ended[a.next] = e
	a.next = (a.next + 1) % a.keep
}

// find lists the requests with this id, or all if it is empty: ended ones in order, then the running ones.
func (a *accounts) find(id string) []RequestAccount {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := []RequestAccount{}
	for i := range a.ended {
		if e := a.ended[(a.next+i)%len(a.ended)]; id == "" || e.id == id {
			found = append(found, e.account())
		}
	}
	for e := range a.running {
		if id == "" || e.id == id {
			found = append(found, e.account())
		}
	}
	return found
}

func (a *accounts) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a.find(r.URL.Query().Get("id")))
}
