package epp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// texts are the models' renderers, by endpoint, as its workers announce them.
type texts struct {
	log *slog.Logger

	mu       sync.RWMutex
	elected  map[string]*shape          // by endpoint: how its prompts are rendered
	turned   map[string]chan struct{}   // by endpoint: closed when another is elected
	adapters map[string]map[string]bool // by endpoint: names that some worker of it has an adapter for
	workers  map[string]*told           // by address
	profiles map[string]digest          // by address: of the last that each told, adapters apart
	tried    map[string]*shape          // by endpoint: what was compiled last

	places chan struct{} // renderings at one time
}

// told is what one worker said last.
type told struct {
	worker    fleet.Worker
	standing  standing
	since     time.Time // of the standing
	vote      *shape    // nil: it has told none that is of use
	blockSize int64     // tokens
	adapters  []string
	roots     bool      // it tells what keeps prompts with adapters and salts apart
	late      time.Time // from when on it is complained of; zero: it was, or need not be
}

func newTexts(log *slog.Logger) *texts {
	return &texts{
		log: log, elected: map[string]*shape{}, turned: map[string]chan struct{}{}, adapters: map[string]map[string]bool{},
		workers: map[string]*told{}, profiles: map[string]digest{}, tried: map[string]*shape{},
		places: make(chan struct{}, 4*runtime.GOMAXPROCS(0)),
	}
}

// profile takes a worker's word. changed: of its model, it says something else than before; exact: prompts can be held against its
// blocks.
func (t *texts) profile(w fleet.Worker, p *workerv1.Profile) (changed, exact bool) {
	model := proto.CloneOf(p)
	model.Adapters = nil
	now, _ := digestOf(model)
	t.mu.Lock()
	changed = t.profiles[w.Addr] != now
	t.profiles[w.Addr] = now
	t.mu.Unlock()
	return changed, t.learn(w, p)
}

func (t *texts) learn(w fleet.Worker, p *workerv1.Profile) (exact bool) {
	var vote *shape
	at := indexed
	switch p.Mode {
	case workerv1.Profile_MODE_INDEXED:
		if vote = t.shape(w.Endpoint, p); vote.err != nil {
			at, vote = degraded(causeModel, vote.err.Error()), nil
		}
	case workerv1.Profile_MODE_DEGRADED:
		at = degraded(causeEvents, cmp.Or(p.Reason, "its engine's events do not come"))
	default:
		at = predictive(causeNone, cmp.Or(p.Reason, "it announces no blocks"))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of(w)
	k.vote, k.blockSize, k.adapters = vote, cmp.Or(int64(p.BlockSize), int64(w.BlockSize)), p.Adapters
	k.roots = p.TellsRoots
	t.elect(w.Endpoint)
	switch {
	case vote == nil:
	case vote.sum != t.elected[w.Endpoint].sum:
		at = differs
	case p.BlockSize != 0 && w.BlockSize != 0 && p.BlockSize != w.BlockSize:
		at = degraded(causeBlockSize, fmt.Sprintf("block size: its events tell of %d tokens, its engine of %d", p.BlockSize, w.BlockSize))
	}
	t.set(k, at)
	return at == indexed
}

// say notes why a worker cannot be followed. It is what it said before, for what the endpoint's prompts are rendered by.
func (t *texts) say(w fleet.Worker, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(t.of(w), degraded(causeUnreachable, reason))
}

// leave forgets a worker.
func (t *texts) leave(w fleet.Worker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.workers[w.Addr]; k != nil && same(k.worker, w) {
		delete(t.workers, w.Addr)
		delete(t.profiles, w.Addr)
		t.elect(w.Endpoint)
	}
}

// of is what a worker told; one that has just come is given time before it is complained of.
func (t *texts) of(w fleet.Worker) *told {
	k := t.workers[w.Addr]
	if k == nil || !same(k.worker, w) {
		k = &told{late: time.Now().Add(startup)}
		t.workers[w.Addr] = k
	}
	k.worker = w
	return k
}

func (t *texts) set(k *told, at standing) {
	if k.standing == at {
		return
	}
	k.standing, k.since = at, time.Now()
	switch {
	case at == indexed:
		k.late = time.Time{}
		t.log.Info("what the worker holds is known", "worker", k.worker.Name, "endpoint", k.worker.Endpoint)
	case k.late.IsZero():
		t.complain(k)
	default:
		t.log.Info("what the worker holds is guessed so far", "worker", k.worker.Name, "endpoint", k.worker.Endpoint, "reason", at.reason)
	}
}

// startup is how long a worker may take to tell what it holds before that is complained of.
const startup = 30 * time.Second

// complainOfLate complains of those that should have told by now.
func (t *texts) complainOfLate(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.workers {
		if !k.late.IsZero() && !now.Before(k.late) {
			t.complain(k)
		}
	}
}

func (t *texts) complain(k *told) {
	k.late = time.Time{}
	t.log.Warn("what the worker holds is guessed", "worker", k.worker.Name, "endpoint", k.worker.Endpoint, "reason", k.standing.reason)
}

// render appends the text of a request to dst. result says what became of it: "rendered"; "unknown" where no worker of the
// endpoint announces its blocks; or what it has that is no text, and then out is the text of what comes before that, if any, or
// why it has none.
func (t *texts) render(ctx context.Context, dst []byte, endpoint string, req *openai.Request, body []byte) (out []byte, result string) {
	t.mu.RLock()
	m := t.elected[endpoint]
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
	before := len(dst)
	out, err := m.text.Render(dst, req, body)
	if err == nil {
		return out, wholeText
	}
	if len(out) == before {
		out = nil
	}
	return out, resultOf(err)
}

// wholeText is the one result with all of the text.
const wholeText = "rendered"

func resultOf(err error) string {
	for is, result := range map[error]string{text.ErrImage: "image", text.ErrAudio: "audio", text.ErrVideo: "video", text.ErrParts: "parts",
		text.ErrTokens: "tokens", text.ErrPrompts: "prompts", text.ErrTemplate: "template"} {
		if errors.Is(err, is) {
			return result
		}
	}
	return "operation"
}

// list is how the workers stand, by endpoint and address.
func (t *texts) list() []Index {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var all []Index
	for addr, k := range t.workers {
		at := k.standing
		all = append(all, Index{k.worker.Endpoint, addr, at.state, at.cause, at.reason, k.since})
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

// tellsRoots says that what a worker announces is of use for prompts with an adapter or a salt.
func (t *texts) tellsRoots(addr string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	k := t.workers[addr]
	return k != nil && k.roots
}
