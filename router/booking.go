package router

// load is what a worker has to do, or what one request adds to it. In blocks.
type load struct {
	prefill, decode, requests int
}

func (l *load) add(o load) {
	l.prefill += o.prefill
	l.decode += o.decode
	l.requests += o.requests
}

func (l *load) sub(o load) {
	l.add(load{-o.prefill, -o.decode, -o.requests})
}

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
	candidates []holding // what each candidate held at the pick
	decodes    bool      // the first byte is out
	done       bool
	sent       *sent // nil: what it was sent is not waited for
	served     func(addr string, cached *int64)
}

// sent is a prompt at a worker that announces its blocks: until its first byte it counts as held there.
type sent struct {
	leaf *node // of the index: where the prompt ends
	slot int
	life uint32
}

// computed ends the wait.
func (b *Booking) computed(is bool) {
	if s := b.sent; s != nil {
		b.r.index.Computed(b.r.clock, s.leaf, s.slot, s.life, burst, is)
		b.sent = nil
	}
}

type holding struct {
	addr string
	held int
}

// load of the request in its present state.
func (b *Booking) load() load {
	if b.decodes {
		return load{decode: b.blocks, requests: 1}
	}
	return load{prefill: b.blocks - b.held, decode: b.held, requests: 1}
}

// change takes the booking's load away, lets f change the booking, and adds what it is then.
func (b *Booking) change(f func()) {
	if b == nil {
		return
	}
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	if b.done {
		return
	}
	if b.w != nil {
		b.w.load.sub(b.load())
	}
	f()
	if b.w != nil && !b.done {
		b.w.load.add(b.load())
	}
}

// Serving tells which worker really serves the request, after a retry perhaps. Empty says nothing.
func (b *Booking) Serving(addr string) {
	b.change(func() {
		w := b.r.byAddr[addr]
		if addr == "" || w == b.w {
			return
		}
		b.computed(false) // there, it never will be
		b.w, b.held = w, 0
		for _, c := range b.candidates {
			if c.addr == addr {
				b.held = c.held
			}
		}
	})
}

// FirstByte tells that the prompt is prefilled: its blocks are in decode from now on.
func (b *Booking) FirstByte() {
	b.change(func() {
		b.decodes = true
		b.computed(true)
	})
}

// Release ends the booking.
func (b *Booking) Release() {
	b.change(func() {
		b.done, b.candidates = true, nil
		b.computed(false)
	})
}

// Watch has f called once with what Served tells, and who served it (empty: one that the router does not know).
func (b *Booking) Watch(f func(addr string, cached *int64)) {
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
