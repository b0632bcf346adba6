package router

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// load is what a worker has to do, or what one request adds to it. prefill and decode are blocks.
type load struct {
	prefill, decode, requests int
	waiting                   int // of the requests, those without a first byte
}

func (l *load) add(o load) {
	l.prefill += o.prefill
	l.decode += o.decode
	l.requests += o.requests
	l.waiting += o.waiting
}

func (l *load) sub(o load) {
	l.add(load{-o.prefill, -o.decode, -o.requests, -o.waiting})
}

// above is what is more in l than in o.
func (l load) above(o load) load {
	return load{max(l.prefill-o.prefill, 0), max(l.decode-o.decode, 0), max(l.requests-o.requests, 0), max(l.waiting-o.waiting, 0)}
}

func (l load) blocks() int { return l.prefill + l.decode }

// tokenBytes is what a token is taken for where only bytes are known.
const tokenBytes = 4

// fresh is how old a report may be: a worker's beat comes each second.
const fresh = 5 * time.Second

// heard is what a worker reported, and what this router had booked there meanwhile.
//
// A report counts all requests in the engine, and so this router's own once more. What is beyond those is others': of other doors,
// or sent past all doors. Which of its own were in the engine when the report was made is not known to the second, so the most
// that were booked at one time since the report before the last is taken off: others may be taken for too few for a moment
// behind a peak, but no request counts twice, unless its client left it and the engine has not heard yet.
type heard struct {
	Report
	peak, before most // since the last report, and between it and the one before
	others       load // requests and waiting of it; blocks: see device
	own          int  // blocks that were booked, at most
}

// most is the most of each at any one time.
type most struct{ requests, waiting, blocks int }

func (m *most) see(l load) {
	m.requests, m.waiting, m.blocks = max(m.requests, l.requests), max(m.waiting, l.waiting), max(m.blocks, l.blocks())
}

// Reported takes what a worker says of one of its ranks, so that requests count which others sent. A report that is not newer
// than the last one changes nothing.
func (r *Router) Reported(addr string, rank int, rep Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byName[name{addr, rank}]
	if w == nil || !rep.At.After(w.heard.At) {
		return
	}
	if rep.At.After(r.clock) {
		r.clock = rep.At
	}
	h := &w.heard
	rep.CacheUsed = min(sane(rep.CacheUsed), 1)
	most := h.peak
	most.requests, most.waiting = max(most.requests, h.before.requests), max(most.waiting, h.before.waiting)
	h.Report, h.own = rep, max(most.blocks, h.before.blocks)
	h.others = load{requests: max(rep.Running, 0) + max(rep.Waiting, 0), waiting: max(rep.Waiting, 0)}.above(load{requests: most.requests, waiting: most.waiting})
	h.before, h.peak = h.peak, mostOf(w.load)
}

func mostOf(l load) (m most) {
	m.see(l)
	return m
}

// change adds to what a worker has to do, and takes off.
func (w *worker) change(more, less load) {
	w.load.sub(less)
	w.load.add(more)
	w.heard.peak.see(w.load)
}

// device is how many blocks of a size the worker's device holds; 0: not known.
func (w *worker) device(blockBytes int) float64 {
	return float64(w.tokens) * tokenBytes / float64(blockBytes)
}

// others is what a worker has to do for others than this router. missing is what each of them that waits is taken to have to
// prefill. No fresh report: nothing is known, and nothing is assumed.
func (w *worker) others(now time.Time, blockBytes int, missing float64) load {
	h := &w.heard
	if !h.told(now) {
		return load{}
	}
	l := h.others
	l.prefill = int(math.Round(float64(l.waiting) * missing))
	l.decode = max(int(h.CacheUsed*w.device(blockBytes))-h.own, 0)
	return l
}

func (h *heard) told(now time.Time) bool { return !h.At.IsZero() && now.Sub(h.At) < fresh }

// WorkerLoad is what the router believes a worker has to do.
type WorkerLoad struct {
	Addr          string
	Rank          int // -1: it has but one
	PrefillBlocks int // still to prefill
	DecodeBlocks  int // in use by requests
	Requests      int // booked
	Waiting       int // of these, those without a first byte
	// Others are requests beyond those, which the worker reports, and OtherBlocks what they are taken to use and to wait for.
	Others, OtherBlocks int
	// Busy says which threshold the worker is beyond; empty: none.
	Busy string
}

// Load gives the workers by address and rank.
func (r *Router) Load() []WorkerLoad {
	r.mu.Lock()
	defer r.mu.Unlock()
	how := r.routing.Load()
	ls := make([]WorkerLoad, 0, len(r.byName))
	for _, w := range r.byName {
		others := w.others(r.clock, how.BlockBytes, r.missing)
		u := w.use(r.clock, how, others)
		ls = append(ls, WorkerLoad{
			Addr: w.addr, Rank: w.told(), PrefillBlocks: w.load.prefill, DecodeBlocks: w.load.decode, Requests: w.load.requests,
			Waiting: w.load.waiting, Others: others.requests, OtherBlocks: others.blocks(), Busy: u.say(u.beyond(how.Busy, 1), how.Busy),
		})
	}
	slices.SortFunc(ls, func(a, b WorkerLoad) int { return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.Rank, b.Rank)) })
	return ls
}

// told is the rank as others are told of it: -1 where there is but one.
func (w *worker) told() int {
	if w.only {
		return -1
	}
	return w.rank
}
