package router

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// book is a request as the dumb router knows it. Loads are added up from these anew each time they are needed.
type book struct {
	booking *Booking
	worker  string // "": a stranger
	life    int
	held    map[string]int // of each candidate, and of the one that prefills
	names   map[string]string
	blocks  int
	decodes bool
	session uint64
	prefill string // name of the worker that prefills; "": none
	preLife int
}

// dumb is a router that keeps lists of all that happened and computes everything from them.
type dumb struct {
	memory
	how     policy.Routing
	workers map[string]Worker // by name: address and rank
	books   []*book
	picked  map[string]int // when each was picked last, by worker and life
	picks   int
	missing []int // of each pick
	visits  map[uint64]visitOf
	reports map[string]*said // by worker and life
	past    map[string][]load
}

type visitOf struct {
	name string // with its life
	at   time.Time
}

// said is a worker's last report, and how long the past was when it came, and the one before.
type said struct {
	Report
	at, before int
	most       load // booked at any time since the report before
	blocks     int
}

func (d *dumb) name(w string) string { return fmt.Sprint(w, "/", d.alive[w]) }

// names of the workers in a role, sorted; prefill: those that compute for others.
func (d *dumb) names(prefill bool) (all []string) {
	for n, w := range d.workers {
		if (w.Role == RolePrefill) == prefill {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all
}

func nameOf(addr string, rank int) string { return fmt.Sprintf("%s#%d", addr, rank) }

// booked is what is booked on a worker.
func (d *dumb) booked(n string) (l load) {
	for _, k := range d.books {
		if k.worker == n && k.life == d.alive[n] {
			switch {
			case k.decodes || k.prefill != "":
				l.add(load{decode: k.blocks, requests: 1})
			default:
				l.add(load{prefill: k.blocks - k.held[n], decode: k.held[n], requests: 1, waiting: 1})
			}
		}
		if k.prefill == n && k.preLife == d.alive[n] && !k.decodes {
			l.add(load{prefill: k.blocks - k.held[n], decode: k.held[n], requests: 1, waiting: 1})
		}
	}
	return l
}

// happened notes what is booked everywhere, after each thing that happens.
func (d *dumb) happened() {
	for n := range d.workers {
		d.past[d.name(n)] = append(d.past[d.name(n)], d.booked(n))
	}
}

// report comes from a worker.
func (d *dumb) report(n string, rep Report) {
	name := d.name(n)
	s := d.reports[name]
	if s == nil {
		s = &said{}
		d.reports[name] = s
	}
	past := d.past[name]
	s.most, s.blocks = load{}, 0
	for _, l := range past[s.before:] {
		s.most.requests, s.most.waiting = max(s.most.requests, l.requests), max(s.most.waiting, l.waiting)
		s.blocks = max(s.blocks, l.prefill+l.decode)
	}
	s.Report = rep
	s.before, s.at = s.at, len(past)-1 // what is booked now was booked before and after
}

func (d *dumb) fresh(now time.Time, n string) *said {
	if s := d.reports[d.name(n)]; s != nil && now.Sub(s.At) < 5*time.Second {
		return s
	}
	return nil
}

// device is how many blocks a worker has; 0: unknown.
func (d *dumb) device(n string) float64 {
	return float64(d.workers[n].Blocks*d.workers[n].BlockTokens) * 4 / float64(d.size)
}

func (d *dumb) others(now time.Time, n string) (l load) {
	s := d.fresh(now, n)
	if s == nil {
		return l
	}
	mean := 0.0
	for i, m := range d.missing {
		if i == 0 {
			mean = float64(m)
		} else {
			mean += (float64(m) - mean) / 16
		}
	}
	l.waiting = max(s.Waiting-s.most.waiting, 0)
	l.requests = max(s.Running+s.Waiting-s.most.requests, 0)
	l.prefill = int(math.Round(float64(l.waiting) * mean))
	l.decode = max(int(s.CacheUsed*d.device(n))-s.blocks, 0)
	return l
}

func (d *dumb) busy(now time.Time, n string, share float64) bool {
	own, others, most := d.booked(n), d.others(now, n), d.how.Busy
	used := 0.0
	if s := d.fresh(now, n); s != nil && s.CacheUsed > 0 {
		used = s.CacheUsed
		if d.device(n) > 0 {
			used += float64(own.prefill) / d.device(n)
		}
	} else if d.device(n) > 0 {
		used = float64(own.decode) / d.device(n)
	}
	return most.DecodeShare > 0 && used >= most.DecodeShare*share ||
		most.PrefillTokens > 0 && float64((own.prefill+others.prefill)*d.size/4) >= float64(most.PrefillTokens)*share ||
		most.Queue > 0 && float64(own.waiting+others.waiting) >= float64(most.Queue)*share
}

// judged is a worker as it stands for one request.
type judged struct {
	name, addr string
	busy       bool
	cost       float64
	requests   int
	picked     int
	split      bool
}

func (d *dumb) judge(now time.Time, q *question, names []string, elsewhere *judged) (all []judged) {
	blocks := (len(q.prompt) + d.size - 1) / d.size
	for _, n := range names {
		w := d.workers[n]
		if q.subset != nil && !slices.Contains(q.subset, w.Addr) {
			continue
		}
		l := d.booked(n)
		l.add(d.others(now, n))
		held := d.overlap(now, q.prompt, n)
		j := judged{name: n, addr: w.Addr, requests: l.requests, picked: d.picked[d.name(n)], busy: d.busy(now, n, q.share())}
		missing := float64(blocks) - float64(held)/(1+d.how.CreditDecay*float64(l.requests))
		j.split = elsewhere != nil && w.Role == RoleDecode && held < blocks && (blocks-held)*d.size/4 >= d.how.Split.MinTokens &&
			float64(held) < d.how.Split.CachedShare*float64(blocks)
		if j.split {
			j.cost = elsewhere.cost + (d.how.OverlapWeight*float64(l.prefill) + float64(l.decode) + d.how.ActiveWeight*float64(l.requests)) + float64(blocks-held)
		} else {
			prefill := missing + float64(l.prefill) + d.how.MissWeight*missing
			j.cost = d.how.OverlapWeight*prefill + float64(l.decode) + d.how.ActiveWeight*float64(l.requests)
		}
		if v := d.visits[q.session]; q.session != 0 && v.name == d.name(n) && now.Before(v.at.Add(time.Hour)) {
			j.cost -= d.how.AffinityWeight * float64(blocks)
		}
		all = append(all, j)
	}
	slices.SortStableFunc(all, func(a, b judged) int {
		if a.busy != b.busy {
			return cmp.Compare(btoi(a.busy), btoi(b.busy))
		}
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.requests, b.requests), cmp.Compare(a.picked, b.picked))
	})
	return all
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// question is an ask as the dumb router takes it.
type question struct {
	prompt    []byte
	subset    []string
	session   uint64
	sheddable bool
	split     bool
}

func (q *question) share() float64 {
	if q.sheddable {
		return 0.8
	}
	return 1
}

// answer is what must be picked: addresses and ranks, best first, the one that prefills, or why nobody is.
func (d *dumb) answer(now time.Time, q *question) (order []judged, prefill *judged, err error) {
	var elsewhere *judged
	if q.split {
		if pre := d.judge(now, q, d.names(true), nil); len(pre) > 0 && !pre[0].busy {
			elsewhere = &pre[0]
		}
	}
	all := d.judge(now, q, d.names(false), elsewhere)
	switch {
	case len(d.names(false)) == 0:
		return nil, nil, ErrNoWorker
	case len(all) == 0:
		return nil, nil, ErrNoneEligible
	case all[0].busy:
		return nil, nil, ErrBusy
	}
	if all[0].split {
		prefill = elsewhere
	}
	for _, j := range all {
		if len(order) < 4 && !slices.ContainsFunc(order, func(o judged) bool { return o.addr == j.addr }) {
			order = append(order, j)
		}
	}
	return order, prefill, nil
}

// set makes these the workers; those that come anew begin another life.
func (d *dumb) set(ws []Worker) {
	old := d.workers
	d.workers = map[string]Worker{}
	for _, w := range ws {
		for rank := range max(w.Ranks, 1) {
			n := nameOf(w.Addr, rank)
			if _, was := old[n]; !was {
				d.lives++
				d.alive[n] = d.lives
			}
			d.workers[n] = w
		}
	}
}

func subsetOf[T any](r *rand.Rand, all []T) []T {
	some := []T{}
	for _, v := range all {
		if r.IntN(3) > 0 {
			some = append(some, v)
		}
	}
	return some
}
