package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// work is what a comparison does on both sides.
type work struct {
	name     string
	requests []request
	conns    int
	chunks   int           // of a stream; 0: no stream
	pace     time.Duration // between chunks
}

// result is one side of one round.
type result struct {
	rps, p50, p99 float64 // requests a second in the median slice; milliseconds
	envoy, door   float64 // CPU milliseconds a request
	shim          float64
	chunk         float64 // wall time a chunk, all streams together, µs
	delay, delay9 float64 // of a chunk, ms: p50, p99
}

// side runs one side of one round: n requests over w.conns connections, which are warmed up before the clock starts.
func (s *site) side(ctx context.Context, t target, w work, n int) (result, error) {
	s.engine.chunks.Store(int64(w.chunks))
	s.engine.pace.Store(int64(w.pace))
	each := max(1, n/w.conns)
	clients, err := s.clients(t, w, each+warmUps)
	defer func() {
		for _, c := range clients {
			c.conn.net.Close()
		}
	}()
	if err != nil {
		return result{}, err
	}
	if err := together(ctx, clients, func(c *client) error { return c.run(warmUps) }); err != nil {
		return result{}, fmt.Errorf("%s, %s: %w", w.name, t.name, err)
	}
	for _, c := range clients {
		c.took, c.delays = c.took[:0], c.delays[:0]
	}
	runtime.GC()
	before, start := s.spent(), time.Now()
	for _, c := range clients {
		c.start, c.slices = start, c.slices[:0]
	}
	if err := together(ctx, clients, func(c *client) error { return c.run(each) }); err != nil {
		return result{}, fmt.Errorf("%s, %s: %w", w.name, t.name, err)
	}
	wall := time.Since(start)
	return s.summary(t, w, clients, wall, s.spent().minus(before)), nil
}

// warmUps on each connection are not timed.
const warmUps = 2

// client is one connection with what it will send and what it saw.
type client struct {
	conn   *conn
	work   work
	next   int // of work.requests
	tokens []string
	took   []time.Duration
	delays []time.Duration
	start  time.Time
	slices []int // answers in each slice of time since start
}

// slice of time. Rates are those of the median slice: a machine that others share stands still now and then, for both sides
// alike but not in the same rounds. What a side's own stalls cost stands in its p99.
const slice = 50 * time.Millisecond

// count does nothing while warming up.
func (c *client) count() {
	if c.start.IsZero() {
		return
	}
	at := int(time.Since(c.start) / slice)
	for len(c.slices) <= at {
		c.slices = append(c.slices, 0)
	}
	c.slices[at]++
}

// rate a second of what clients counted. The last slice is not whole.
func rate(clients []*client, wall time.Duration) float64 {
	sums, total := make([]float64, int(wall/slice)), 0
	for _, c := range clients {
		for i, n := range c.slices {
			total += n
			if i < len(sums) {
				sums[i] += float64(n)
			}
		}
	}
	if len(sums) < 10 {
		return float64(total) / wall.Seconds()
	}
	return median(sums) / slice.Seconds()
}

// clients connects, and signs all contexts that will be needed.
func (s *site) clients(t target, w work, each int) (cs []*client, err error) {
	var tokens []string
	if t.signs {
		tokens = s.signer.sign(each * w.conns)
	}
	for i := range w.conns {
		conn, err := dial(t.address)
		if err != nil {
			return cs, err
		}
		c := &client{conn: conn, work: w, next: i * different / w.conns, took: make([]time.Duration, 0, each)}
		if t.signs {
			c.tokens = tokens[i*each : (i+1)*each]
		}
		if w.pace > 0 {
			c.delays = make([]time.Duration, 0, each*w.chunks)
			conn.delays = func(d time.Duration) { c.delays = append(c.delays, d) }
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// run sends n requests, one after the other.
func (c *client) run(n int) error {
	for range n {
		token := ""
		if c.tokens != nil {
			token, c.tokens = c.tokens[0], c.tokens[1:]
		}
		start := time.Now()
		a, err := c.conn.do(c.work.requests[c.next%different], token)
		if err != nil {
			return err
		}
		if c.work.chunks > 0 && a.events != c.work.chunks+2 {
			return fmt.Errorf("%d events, want %d chunks, the usage and the end", a.events, c.work.chunks)
		}
		c.next++
		c.took = append(c.took, time.Since(start))
		c.count()
	}
	return nil
}

// together runs f for all clients at once and gives the first error.
func together(ctx context.Context, cs []*client, f func(*client) error) error {
	failed := make(chan error, len(cs))
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(func() {
			defer context.AfterFunc(ctx, func() { c.conn.net.Close() })()
			if err := f(c); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	close(failed)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return <-failed
}

// cpu of the processes, so far.
type cpu struct{ plainEnvoy, doorEnvoy, door, shim time.Duration }

func (s *site) spent() cpu {
	return cpu{s.plainEnvoy.cpu(), s.doorEnvoy.cpu(), s.doorProcess.cpu(), s.shim.cpu()}
}

func (a cpu) minus(b cpu) cpu {
	return cpu{a.plainEnvoy - b.plainEnvoy, a.doorEnvoy - b.doorEnvoy, a.door - b.door, a.shim - b.shim}
}

func (s *site) summary(t target, w work, clients []*client, wall time.Duration, used cpu) result {
	var took, delays []time.Duration
	for _, c := range clients {
		took, delays = append(took, c.took...), append(delays, c.delays...)
	}
	n := len(took)
	each := func(d time.Duration) float64 { return ms(d) / float64(n) }
	r := result{rps: rate(clients, wall), envoy: each(used.plainEnvoy), shim: each(used.shim)}
	if !t.signs {
		r.envoy, r.door = each(used.doorEnvoy), each(used.door)
	}
	r.p50, r.p99 = percentile(took, 50), percentile(took, 99)
	if w.chunks > 0 { // too few whole answers for slices
		r.rps = float64(n) / wall.Seconds()
		r.chunk = 1e6 / (r.rps * float64(w.chunks))
	}
	r.delay, r.delay9 = percentile(delays, 50), percentile(delays, 99)
	return r
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// percentile in milliseconds; it sorts d.
func percentile(d []time.Duration, p int) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return ms(d[min(len(d)-1, len(d)*p/100)])
}
