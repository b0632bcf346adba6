package epp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/prompt/text"
)

// How much is known of what a worker holds.
const (
	Exact    = "exact"    // it announces its blocks, and prompts of its model can be rendered
	Guessed  = "guessed"  // by what it was sent
	Degraded = "degraded" // it does announce, but its engine does not report what follows from that: so it is guessed
)

// Index is how much is known of what a worker holds.
type Index struct {
	Endpoint, Addr string
	State          string
	Reason         string // why not Exact
}

// String is the state, with its reason.
func (i Index) String() string {
	if i.Reason == "" {
		return i.State
	}
	return i.State + " (" + i.Reason + ")"
}

// texts are the models' renderers, by endpoint, as its workers announce them.
type texts struct {
	log *slog.Logger

	mu       sync.RWMutex
	models   map[string]*model            // by endpoint
	workers  map[string]*told             // by address
	profiles map[string]*workerv1.Profile // by address: the last that each told
	tried    map[string]*trial            // by endpoint: what was compiled last

	places chan struct{} // renderings at one time
}

// trial is a profile, and what came of compiling it: a worker that is followed again tells the same.
type trial struct {
	profile *workerv1.Profile
	text    *text.Model
	err     error
}

// model of an endpoint. Its workers have one and the same: the first to tell says which.
type model struct {
	profile *workerv1.Profile
	text    *text.Model
	users   int
}

// told is what one worker said last.
type told struct {
	worker    fleet.Worker
	of        *model // nil: what it holds is guessed
	reason    string
	blockSize int64     // tokens
	since     time.Time // when what it holds began to be guessed; zero: it is not, or was complained of
}

func newTexts(log *slog.Logger) *texts {
	return &texts{
		log: log, models: map[string]*model{}, workers: map[string]*told{}, profiles: map[string]*workerv1.Profile{},
		tried: map[string]*trial{}, places: make(chan struct{}, 4*runtime.GOMAXPROCS(0)),
	}
}

// profile takes a worker's word. changed: it is another than that of before; exact: prompts can be held against its blocks.
func (t *texts) profile(w fleet.Worker, p *workerv1.Profile) (changed, exact bool) {
	t.mu.Lock()
	changed = !proto.Equal(t.profiles[w.Addr], p)
	t.profiles[w.Addr] = p
	t.mu.Unlock()
	return changed, t.learn(w, p)
}

func (t *texts) learn(w fleet.Worker, p *workerv1.Profile) (exact bool) {
	if p.Mode != workerv1.Profile_MODE_INDEXED {
		t.say(w, cmp.Or(p.Reason, "it announces no blocks"))
		return false
	}
	// What of it shapes the text.
	shape := proto.Clone(p).(*workerv1.Profile)
	shape.Mode, shape.Reason, shape.BlockSize, shape.TellsRoots = 0, "", 0, false
	renderer, err := t.compile(w.Endpoint, shape)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(w.Addr)
	m := t.models[w.Endpoint]
	if m == nil {
		if err != nil {
			t.set(w, nil, err.Error())
			return false
		}
		m = &model{profile: shape, text: renderer}
		t.models[w.Endpoint] = m
	}
	if !proto.Equal(m.profile, shape) {
		t.set(w, nil, "its tokenizer or chat template is another than that of the endpoint's other workers")
		return false
	}
	m.users++
	t.set(w, m, "")
	t.workers[w.Addr].blockSize = int64(p.BlockSize)
	return true
}

// compile takes as long as the worker's template makes it take: nobody waits for it but this worker.
func (t *texts) compile(endpoint string, shape *workerv1.Profile) (*text.Model, error) {
	t.mu.RLock()
	before := t.tried[endpoint]
	t.mu.RUnlock()
	if before != nil && proto.Equal(before.profile, shape) {
		return before.text, before.err
	}
	now := &trial{profile: shape}
	now.text, now.err = text.New(shape)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tried[endpoint] = now
	return now.text, now.err
}

// say notes why what a worker holds is guessed.
func (t *texts) say(w fleet.Worker, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before := t.workers[w.Addr]; before != nil && before.of == nil && before.reason == reason {
		return
	}
	t.drop(w.Addr)
	t.set(w, nil, reason)
}

// leave forgets a worker.
func (t *texts) leave(w fleet.Worker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.workers[w.Addr]; k != nil && same(k.worker, w) {
		t.drop(w.Addr)
		delete(t.workers, w.Addr)
		delete(t.profiles, w.Addr)
	}
}

func (t *texts) set(w fleet.Worker, m *model, reason string) {
	before := t.workers[w.Addr]
	k := &told{worker: w, of: m, reason: reason}
	t.workers[w.Addr] = k
	switch {
	case m != nil:
		t.log.Info("what the worker holds is known", "worker", w.Name, "endpoint", w.Endpoint)
		return
	case before == nil: // it starts
		k.since = time.Now()
	case before.since.IsZero():
		t.complain(k)
		return
	default:
		k.since = before.since
	}
	t.log.Info("what the worker holds is guessed so far", "worker", w.Name, "endpoint", w.Endpoint, "reason", reason)
}

// startup is how long a worker may take to tell what it holds before that is complained of.
const startup = 30 * time.Second

// complainOfLate complains of those that should have told by now.
func (t *texts) complainOfLate(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.workers {
		if !k.since.IsZero() && now.Sub(k.since) >= startup {
			t.complain(k)
		}
	}
}

func (t *texts) complain(k *told) {
	k.since = time.Time{}
	t.log.Warn("what the worker holds is guessed", "worker", k.worker.Name, "endpoint", k.worker.Endpoint, "reason", k.reason)
}

func (t *texts) drop(addr string) {
	k := t.workers[addr]
	if k == nil || k.of == nil {
		return
	}
	if k.of.users--; k.of.users == 0 {
		delete(t.models, k.worker.Endpoint)
	}
	k.of = nil
}

// render appends the text of a request to dst; result says what became of it: "rendered", "unknown" where no worker of the
// endpoint announces its blocks, or why it has none.
func (t *texts) render(ctx context.Context, dst []byte, endpoint string, req *openai.Request, body []byte) (out []byte, result string) {
	t.mu.RLock()
	m := t.models[endpoint]
	t.mu.RUnlock()
	if m == nil {
		return nil, "unknown"
	}
	select { // whoever has given up does not make others wait
	case t.places <- struct{}{}:
		defer func() { <-t.places }()
	case <-ctx.Done():
		return nil, "busy"
	}
	out, err := m.text.Render(dst, req, body)
	switch {
	case err == nil:
		return out, "rendered"
	case errors.Is(err, text.ErrParts):
		return nil, "parts"
	case errors.Is(err, text.ErrTemplate):
		return nil, "template"
	case errors.Is(err, text.ErrPrompt):
		return nil, "prompt"
	}
	return nil, "operation"
}

// list is how the workers stand, by endpoint and address.
func (t *texts) list() []Index {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var all []Index
	for addr, k := range t.workers {
		i := Index{Endpoint: k.worker.Endpoint, Addr: addr, State: Exact, Reason: k.reason}
		if k.of == nil {
			i.State = Guessed
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Index) int {
		return cmp.Or(strings.Compare(a.Endpoint, b.Endpoint), strings.Compare(a.Addr, b.Addr))
	})
	return all
}

// blockSize of a worker's engine, in tokens; 0: not known.
func (t *texts) blockSize(addr string) int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if k := t.workers[addr]; k != nil {
		return k.blockSize
	}
	return 0
}
