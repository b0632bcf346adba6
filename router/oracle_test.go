package router

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// The settings under which the router is held against the dumb one: each option by itself, and many together.
var settings = []policy.Routing{
	{OverlapWeight: 1},
	{MissWeight: 1},
	{OverlapWeight: 0.5, MissWeight: 0.5, ActiveWeight: 3},
	{OverlapWeight: 3, CreditDecay: 0.3},
	{OverlapWeight: 1, AffinityWeight: 1.5},
	{OverlapWeight: 2, Busy: policy.Busy{Queue: 3}},
	{OverlapWeight: 1, Busy: policy.Busy{DecodeShare: 0.5}},
	{OverlapWeight: 16, MissWeight: 1, Busy: policy.Busy{PrefillTokens: 60}, Split: policy.Split{MinTokens: 8, CachedShare: 0.9}},
	{OverlapWeight: 4, MissWeight: 0.3, ActiveWeight: 0.7, CreditDecay: 0.1, AffinityWeight: 0.4,
		Busy: policy.Busy{DecodeShare: 0.9, PrefillTokens: 200, Queue: 8}, Split: policy.Split{MinTokens: 20, CachedShare: 0.5}},
}

// TestAgainstTheDumbRouter lives through random sequences of everything that can happen, in any order and twice: picks
// with and without subsets, sessions and splits, first bytes, moves, releases, reports that are early, late and wrong, workers
// with ranks and roles that come and go while they have requests.
func TestAgainstTheDumbRouter(t *testing.T) {
	for i, how := range settings {
		t.Run(fmt.Sprintf("%+v", how), func(t *testing.T) { againstTheDumb(t, how, uint64(i)) })
	}
}

func againstTheDumb(t *testing.T, how policy.Routing, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 9))
	how.BlockBytes = 8
	all := []Worker{
		{Addr: "10.0.0.1:8000", Blocks: 30, BlockTokens: 4}, {Addr: "10.0.0.1:8001"}, {Addr: "10.0.0.2:8000", Ranks: 3, Blocks: 50, BlockTokens: 2},
		{Addr: "[::1]:8000", Role: RoleDecode, Blocks: 100, BlockTokens: 1}, {Addr: "[2001:db8::1]:8000", Role: RoleDecode, Ranks: 2},
		{Addr: "10.0.1.1:8000", Role: RolePrefill}, {Addr: "10.0.1.2:8000", Role: RolePrefill, Ranks: 2},
	}
	d := &dumb{memory: memory{ttl: time.Minute, size: 8, alive: map[string]int{}}, how: how, picked: map[string]int{},
		workers: map[string]Worker{}, visits: map[uint64]visitOf{}, reports: map[string]*said{}, past: map[string][]load{}}
	p := newPool(t, Config{TTL: time.Minute})
	p.SetRouting(how)
	counts := map[string]int{}
	for range 1200 {
		p.now = p.now.Add(time.Duration(r.IntN(3)) * time.Second)
		switch n := r.IntN(24); {
		case n == 0:
			ws := subsetOf(r, all)
			p.SetWorkers(ws)
			d.set(ws)
		case n < 4:
			reportBoth(p, d, r)
		case n < 12:
			counts[pickBoth(p, d, r)]++
		case len(d.books) > 0:
			happen(d, r, all, p.now)
		}
		d.happened()
		same(p, d)
	}
	for _, k := range d.books {
		k.booking.Release()
	}
	d.books = nil
	same(p, d)
	if counts["picked"] < 100 || how.Busy != (policy.Busy{}) && counts[ErrBusy.Error()] == 0 || how.Split.CachedShare > 0 && counts["split"] == 0 {
		t.Errorf("of too little: %v", counts)
	}
}

func reportBoth(p *pool, d *dumb, r *rand.Rand) {
	for n, w := range d.workers {
		rank := int(n[len(n)-1] - '0')
		if r.IntN(3) == 0 {
			continue
		}
		rep := Report{At: p.now, Running: r.IntN(5), Waiting: r.IntN(4), CacheUsed: float64(r.IntN(8)) / 8}
		if s := d.reports[d.name(n)]; s != nil && !rep.At.After(s.At) {
			p.Reported(w.Addr, rank, Report{At: s.At, Running: 1000}) // no news
			continue
		}
		p.Reported(w.Addr, rank, rep)
		d.report(n, rep)
	}
	p.Reported("10.9.9.9:1", 0, Report{At: p.now, Running: 9})
}

// pickBoth says what came of it.
func pickBoth(p *pool, d *dumb, r *rand.Rand) string {
	p.t.Helper()
	q := &question{prompt: variant(r), session: uint64(r.IntN(5)), sheddable: r.IntN(4) == 0, split: r.IntN(3) > 0}
	if r.IntN(3) == 0 {
		q.subset = []string{}
		for _, w := range subsetOf(r, append(d.names(false), d.names(true)...)) {
			q.subset = append(q.subset, d.workers[w].Addr)
		}
	}
	order, prefill, want := d.answer(p.now, q)
	choice, err := p.Pick(p.now, Ask{Prompt: q.prompt, Subset: q.subset, Session: q.session, Sheddable: q.sheddable, Split: q.split})
	if !errors.Is(err, want) {
		p.t.Fatalf("error %v, want %v", err, want)
	}
	if err != nil {
		var busy *BusyError
		if errors.As(err, &busy) && (busy.Sheddable != q.sheddable || busy.RetryAfter < time.Second || busy.RetryAfter > 30*time.Second) {
			p.t.Fatalf("%+v", busy)
		}
		return want.Error()
	}
	var names []string
	for i, addr := range choice.Addrs {
		names = append(names, nameOf(addr, max(choice.Ranks[i], 0)))
		if (choice.Ranks[i] < 0) != (d.workers[names[i]].Ranks <= 1) {
			p.t.Fatalf("rank %d of %+v", choice.Ranks[i], d.workers[names[i]])
		}
	}
	if !slices.EqualFunc(names, order, func(n string, j judged) bool { return n == j.name }) {
		p.t.Fatalf("picked %v, want %v\n%s", names, order, choice.Explain())
	}
	recompute(p.t, d.how, choice.Explain())
	if (prefill == nil) != (choice.Prefill == "") || prefill != nil && prefill.name != nameOf(choice.Prefill, max(choice.PrefillRank, 0)) {
		p.t.Fatalf("prefill by %q rank %d, want %+v\n%s", choice.Prefill, choice.PrefillRank, prefill, choice.Explain())
	}
	k := &book{booking: choice.Booking, worker: names[0], life: d.alive[names[0]], held: map[string]int{}, names: map[string]string{}, blocks: choice.Blocks}
	if how := d.how; how.AffinityWeight > 0 && q.session != 0 {
		k.session = q.session
	}
	for i, n := range names {
		k.held[n], k.names[choice.Addrs[i]] = d.overlap(p.now, q.prompt, n), n
	}
	if choice.Overlap != k.held[names[0]] {
		p.t.Fatalf("overlap %d, want %d", choice.Overlap, k.held[names[0]])
	}
	d.missing = append(d.missing, choice.Blocks-choice.Overlap)
	if prefill != nil {
		k.prefill, k.preLife = prefill.name, d.alive[prefill.name]
		k.held[prefill.name] = d.overlap(p.now, q.prompt, prefill.name)
	}
	d.send(p.now, q.prompt, names[0])
	if prefill != nil {
		d.send(p.now, q.prompt, prefill.name)
	}
	d.visit(k, names[0], p.now)
	d.books = append(d.books, k)
	if prefill != nil {
		return "split"
	}
	return "picked"
}

func (d *dumb) send(now time.Time, prompt []byte, n string) {
	d.picks++
	d.picked[d.name(n)] = d.picks
	d.sent = append(d.sent, &sentPrompt{prompt: prompt, worker: n, life: d.alive[n], until: now.Add(d.ttl)})
}

func (d *dumb) visit(k *book, n string, now time.Time) {
	if k.session != 0 {
		d.visits[k.session] = visitOf{d.name(n), now}
	}
}

// happen does something to a random request.
func happen(d *dumb, r *rand.Rand, all []Worker, now time.Time) {
	i := r.IntN(len(d.books))
	k := d.books[i]
	switch r.IntN(4) {
	case 0:
		k.booking.FirstByte()
		k.decodes = true
	case 1:
		addr := all[r.IntN(len(all))].Addr
		k.booking.Serving(addr)
		n := nameOf(addr, 0)
		if known := k.names[addr]; known != "" {
			n = known
		}
		if n == k.worker && k.life == d.alive[n] {
			return
		}
		k.worker, k.life = n, d.alive[n]
		if _, is := d.workers[n]; !is {
			k.worker = ""
			return
		}
		d.visit(k, n, clockOf(k.booking, now))
	default:
		k.booking.Release()
		if r.IntN(2) == 0 {
			k.booking.Release()
			k.booking.FirstByte()
			k.booking.Serving(all[0].Addr)
		}
		d.books = slices.Delete(d.books, i, i+1)
	}
}

// clockOf is the time as the router has it: that of the latest pick or report.
func clockOf(b *Booking, _ time.Time) time.Time { return b.r.clock }

func same(p *pool, d *dumb) {
	p.t.Helper()
	p.index.check(p.t)
	loads := p.Load()
	names := append(d.names(false), d.names(true)...)
	if len(loads) != len(names) {
		p.t.Fatalf("%d workers, want %d", len(loads), len(names))
	}
	for _, got := range loads {
		want := d.booked(nameOf(got.Addr, max(got.Rank, 0)))
		if got.PrefillBlocks != want.prefill || got.DecodeBlocks != want.decode || got.Requests != want.requests || got.Waiting != want.waiting {
			p.t.Fatalf("load %+v, want %+v", got, want)
		}
		if min(got.PrefillBlocks, got.DecodeBlocks, got.Requests, got.Waiting, got.Others, got.OtherBlocks) < 0 {
			p.t.Fatalf("negative: %+v", got)
		}
	}
}
