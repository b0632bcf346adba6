package router

// Booking is one request's place on a worker. Its methods are idempotent and safe for concurrent use; nil does nothing.
//
// What it adds to a worker is a function of its own state, and every change first takes the old away and then adds the
// new, under the router's lock: so loads come out even whatever the order of events.
type Booking struct {
	r *Router

	// All below is guarded by r.mu.
	w          *worker   // nil: served by one that the router does not know
	held       int       // blocks of the prompt that w held at the pick
	blocks     int       // of the prompt
	prefill    *prefill  // another worker computes the prompt; nil: none does, or it is done
	candidates []holding // what each candidate held at the pick
	session    uint64    // 0: not remembered
	decodes    bool      // the first byte is out
	done       bool
	sent       *sent // nil: what it was sent is not waited for
	served     func(addr string, cached *int64)
}

// prefill is the booking's place on the worker that computes its prompt for another. It lasts until the first byte.
type prefill struct {
	w    *worker
	held int
	sent *sent
}

// sent is a prompt at a worker that announces its blocks: until its first byte it counts as held there.
type sent struct {
	leaf *node // of the index: where the prompt ends
	slot int
	life uint32
}

// holding is what a candidate held at the pick.
type holding struct {
	name
	held int
}

// book puts the request on the worker chosen, and on the one that computes the prompt for it, and remembers the prompt there.
func (r *Router) book(c *Choice, s *scratch, ask *Ask) {
	best := &c.all[c.order[0]]
	if missing := float64(c.Blocks - int(best.held)); r.picks == 0 {
		r.missing = missing
	} else {
		r.missing += (missing - r.missing) / 16
	}
	b := &Booking{r: r, w: best.w, held: int(best.held), blocks: c.Blocks}
	b.candidates = make([]holding, len(c.order))
	for i, k := range c.order {
		b.candidates[i] = holding{c.all[k].w.name, int(c.all[k].held)}
	}
	b.sent, c.Waits = r.send(best, &s.prompt, ask.known())
	if c.Prefill != "" {
		k := &c.prefills[c.prefill]
		b.prefill = &prefill{w: k.w, held: int(k.held)}
		r.index.Overlap(r.clock, &s.prompt, s.held) // each Sent wants one before
		b.prefill.sent, _ = r.send(k, &s.prompt, ask.known())
	}
	if c.how.AffinityWeight > 0 {
		b.session = ask.Session
		r.sessions.visit(r.clock, b.session, b.w)
	}
	b.count(load{}, load{})
	c.Booking = b
}

// send remembers the prompt at a worker. known: its text is, so that a worker with a feed will tell what becomes of it: then it is
// waited for, and waits says whether more of it may be held there by the time that its turn comes.
func (r *Router) send(k *candidate, p *Prompt, known bool) (wait *sent, waits bool) {
	r.picks++
	k.w.last = r.picks
	ttl, slot := r.cfg.TTL, k.w.slot
	if !known || k.w.feed == nil {
		r.index.Sent(r.clock, p, slot, ttl, false)
		return nil, false
	}
	if !k.w.feed.doubted {
		ttl = min(ttl, burst)
	}
	waits = r.index.Waits(p, slot)
	leaf := r.index.Sent(r.clock, p, slot, ttl, true)
	return &sent{leaf, slot, r.index.life(slot)}, waits
}

// computed ends the wait.
func (r *Router) computed(s **sent, is bool) {
	if *s != nil {
		r.index.Computed(r.clock, (*s).leaf, (*s).slot, (*s).life, burst, is)
		*s = nil
	}
}

// load of the request in its present state: at the worker that answers, and at the one that computes its prompt.
func (b *Booking) load() (main, before load) {
	switch {
	case b.done:
		return load{}, load{}
	case b.decodes:
		return load{decode: b.blocks, requests: 1}, load{}
	case b.prefill != nil:
		return load{decode: b.blocks, requests: 1}, whole(b.blocks, b.prefill.held)
	}
	return whole(b.blocks, b.held), load{}
}

// whole is the load of a prompt that is to be computed.
func whole(blocks, held int) load {
	return load{prefill: blocks - held, decode: held, requests: 1, waiting: 1}
}

// count gives the workers the load that the booking is now, in place of what it was there.
func (b *Booking) count(was, before load) (main, pre load) {
	main, pre = b.load()
	if b.w != nil {
		b.w.change(main, was)
	}
	if b.prefill != nil {
		b.prefill.w.change(pre, before)
	}
	return main, pre
}

// change lets f change the booking, takes the load that it was away, and adds what it is then.
func (b *Booking) change(f func()) {
	if b == nil {
		return
	}
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	if b.done {
		return
	}
	w := b.w
	was, before := b.load()
	f()
	here := was
	if b.w != w {
		here = load{}
		if w != nil {
			w.change(load{}, was)
		}
	}
	main, pre := b.count(here, before)
	was.add(before)
	main.add(pre)
	b.r.pace.note(was, main)
	if b.decodes || b.done {
		b.prefill = nil
	}
}

// Serving tells which worker really serves the request, after a retry perhaps. Empty says nothing. At an address that was no
// candidate its first rank is taken to serve.
func (b *Booking) Serving(addr string) {
	b.change(func() {
		at, held := name{addr, 0}, 0
		for _, c := range b.candidates {
			if c.addr == addr {
				at, held = c.name, c.held
			}
		}
		w := b.r.byName[at]
		if addr == "" || w == b.w {
			return
		}
		b.r.computed(&b.sent, false) // there, it never will be
		b.w, b.held = w, held
		if w != nil {
			b.r.sessions.visit(b.r.clock, b.session, w)
		}
	})
}

// FirstByte tells that the prompt is prefilled: its blocks are in decode from now on.
func (b *Booking) FirstByte() {
	b.change(func() {
		b.decodes = true
		b.ends(true)
	})
}

// Release ends the booking.
func (b *Booking) Release() {
	b.change(func() {
		b.done, b.candidates = true, nil
		b.ends(false)
	})
}

// ends says that nobody computes the prompt any more. computed: it is.
func (b *Booking) ends(computed bool) {
	b.r.computed(&b.sent, computed)
	if b.prefill != nil {
		b.r.computed(&b.prefill.sent, computed)
	}
}

// Watch has f called once with what Served tells, and who served it (empty: one that the router does not know).
func (b *Booking) Watch(f func(addr string, cached *int64)) {
	if b == nil {
		return
	}
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	b.served = f
}

// Served tells that the request was answered well, and how many tokens of its prompt the engine had in its cache; nil: it does
// not say. It may come after Release.
func (b *Booking) Served(cached *int64) {
	if b == nil {
		return
	}
	b.r.mu.Lock()
	f, addr := b.served, ""
	b.served = nil
	if b.w != nil {
		addr = b.w.addr
	}
	b.r.mu.Unlock()
	if f != nil {
		f(addr, cached)
	}
}
