package replay

import (
	"container/heap"
	"context"
	"fmt"
	"slices"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router/blocktree"
)

// Result is what came of one way.
type Result struct {
	Way       string    `json:"way"`
	Requests  int       `json:"requests"`         // judged: those after the warm-up
	HitRate   float64   `json:"hit_rate"`         // of prompt tokens
	Prefilled int64     `json:"prefilled_tokens"` // prompt tokens that had to be computed
	TTFT50    float64   `json:"ttft_p50_s"`
	TTFT99    float64   `json:"ttft_p99_s"`
	Imbalance float64   `json:"imbalance"`          // the busiest worker's seconds of prefill by the mean of all
	Goodput   float64   `json:"goodput_per_second"` // requests whose first token came in time
	TTFTs     []float64 `json:"-"`                  // sorted
}

// Options of a run.
type Options struct {
	Fleet Fleet `json:"fleet"`
	// WarmUp is the share of the requests that come first and are not judged.
	WarmUp float64 `json:"warm_up"`
	// InTime is how long a first token may take to count for the goodput, in seconds.
	InTime float64 `json:"in_time_s"`
}

// Defaults are eight workers as large models have them, and the router as it is without settings of its own.
var Defaults = Options{
	Fleet: Fleet{
		Workers: 8, CacheTokens: 3_000_000, Prefill: 8000, Decode: 50, Delay: 0.05,
		OverlapWeight: policy.DefaultOverlapWeight, MissWeight: policy.DefaultMissWeight,
	},
	WarmUp: 0.25, InTime: 5,
}

// Check says what cannot be run, by the name of the command's flag.
func (o Options) Check() error {
	f := o.Fleet
	for _, c := range []struct {
		flag      string
		value     float64
		low, high float64
	}{
		{"workers", float64(f.Workers), 1, 10_000}, {"cache-tokens", float64(f.CacheTokens), 1, 1e12}, {"prefill", f.Prefill, 1e-3, 1e9},
		{"decode", f.Decode, 1e-3, 1e9}, {"delay", f.Delay, 0, 1e6}, {"overlap-weight", f.OverlapWeight, 0, policy.MaxWeight},
		{"miss-weight", f.MissWeight, 0, policy.MaxWeight}, {"warm-up", o.WarmUp, 0, 0.99}, {"in-time", o.InTime, 0, 1e6},
	} {
		if !(c.value >= c.low && c.value <= c.high) {
			return fmt.Errorf("-%s: want a number from %g to %g", c.flag, c.low, c.high)
		}
	}
	return nil
}

// moment is something that happens at a time; of equal times the one that was asked for first.
type moment struct {
	at    float64
	order int
	do    func()
}

type moments []moment

func (m moments) Len() int { return len(m) }
func (m moments) Less(i, j int) bool {
	return m[i].at < m[j].at || m[i].at == m[j].at && m[i].order < m[j].order
}
func (m moments) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *moments) Push(x any)   { *m = append(*m, x.(moment)) }
func (m *moments) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// run is one replay.
type run struct {
	Options
	trace   *Trace
	choose  chooser
	workers []*worker
	now     float64
	order   int
	next    moments
	from    int // the first request that is judged

	hit, tokens int64
	ttfts       []float64
	busy        []float64
	inTime      int
}

// Run replays the trace in one way, unless ctx ends before.
func Run(ctx context.Context, t *Trace, way string, o Options) (Result, error) {
	c, err := newChooser(way, o.Fleet)
	if err != nil {
		return Result{}, err
	}
	r := &run{Options: o, trace: t, choose: c, from: int(o.WarmUp * float64(len(t.Requests))), busy: make([]float64, o.Fleet.Workers)}
	for i := range o.Fleet.Workers {
		r.workers = append(r.workers, &worker{id: i, cache: newCache(max(o.Fleet.CacheTokens/t.BlockSize, 1), t.Blocks)})
	}
	r.arrive(0)
	for len(r.next) > 0 {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		m := heap.Pop(&r.next).(moment)
		r.now = m.at
		m.do()
	}
	return r.result(way), nil
}

func (r *run) at(when float64, do func()) {
	r.order++
	heap.Push(&r.next, moment{when, r.order, do})
}

// arrive lets request i come, and then the one behind it.
func (r *run) arrive(i int) {
	if i == len(r.trace.Requests) {
		return
	}
	q := &r.trace.Requests[i]
	r.at(q.At, func() {
		to, first, end := r.choose.choose(r.now, q, r.workers)
		w := r.workers[to]
		w.waiting++
		w.queue = append(w.queue, &job{Request: q, number: i, worker: w, first: first, end: end})
		if len(w.queue) == 1 {
			r.begin(w)
		}
		r.arrive(i + 1)
	})
}

// begin computes the first prompt of a worker's queue.
func (r *run) begin(w *worker) {
	j := w.queue[0]
	missing := max(j.In-w.cache.leading(j.Blocks)*r.trace.BlockSize, 1) // the last token is always computed
	took := float64(missing) / r.Fleet.Prefill
	r.at(r.now+took, func() {
		stored, removed := w.cache.use(j.Blocks)
		r.announce(w, stored, removed)
		j.first()
		if j.number >= r.from {
			r.judge(j, missing, took)
		}
		r.at(r.now+float64(j.Out)/r.Fleet.Decode, func() {
			w.waiting--
			j.end()
		})
		if w.queue = w.queue[1:]; len(w.queue) > 0 {
			r.begin(w)
		}
	})
}

func (r *run) announce(w *worker, stored []blocktree.Block, removed []uint32) {
	if len(stored)+len(removed) == 0 {
		return
	}
	if !r.choose.late() {
		r.choose.changed(w.id, stored, removed)
		return
	}
	r.at(r.now+r.Fleet.Delay, func() { r.choose.changed(w.id, stored, removed) })
}

func (r *run) judge(j *job, missing int, took float64) {
	r.tokens += int64(j.In)
	r.hit += int64(j.In - missing)
	r.busy[j.worker.id] += took
	ttft := r.now - j.At
	r.ttfts = append(r.ttfts, ttft)
	if ttft <= r.InTime {
		r.inTime++
	}
}

func (r *run) result(way string) Result {
	slices.Sort(r.ttfts)
	span := r.trace.Requests[len(r.trace.Requests)-1].At - r.trace.Requests[r.from].At
	var sum float64
	for _, b := range r.busy {
		sum += b
	}
	return Result{
		Way: way, Requests: len(r.ttfts), HitRate: float64(r.hit) / float64(max(r.tokens, 1)), Prefilled: r.tokens - r.hit,
		TTFT50: quantile(r.ttfts, 0.5), TTFT99: quantile(r.ttfts, 0.99), TTFTs: r.ttfts,
		Imbalance: slices.Max(r.busy) / max(sum/float64(len(r.busy)), 1e-9), Goodput: float64(r.inTime) / max(span, 1e-9),
	}
}

// quantile of sorted values; 0 of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// BoundName is the way of Bound's result.
const BoundName = "infinite cache"

// Bound is what a cache without bounds, shared by all, would have: the hit rate and the tokens left to compute.
func Bound(t *Trace, o Options) Result {
	seen := make([]bool, t.Blocks)
	from := int(o.WarmUp * float64(len(t.Requests)))
	res := Result{Way: BoundName}
	var tokens int64
	for i, q := range t.Requests {
		hit := 0
		for _, b := range q.Blocks {
			if !seen[b] {
				break
			}
			hit++
		}
		for _, b := range q.Blocks {
			seen[b] = true
		}
		if i >= from {
			res.Requests++
			tokens += int64(q.In)
			res.Prefilled += int64(max(q.In-hit*t.BlockSize, 1))
		}
	}
	res.HitRate = 1 - float64(res.Prefilled)/float64(max(tokens, 1))
	return res
}
