package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// load puts one pair under a steady rate and then three times under many streams, and says which promise broke.
func load(ctx context.Context, o options) error {
	s, err := newSite(ctx, o)
	if err != nil {
		return err
	}
	defer s.close()
	l := &loaded{site: s}
	before, err := l.envoyStats()
	if err != nil {
		return err
	}
	if err := l.rate(ctx, o.rate, o.lasting); err != nil {
		return err
	}
	progress("%d requests, %d a second: p50 %.2f ms, p99 %.2f ms from when each was due", o.rate*int(o.lasting.Seconds()), o.rate, l.p50, l.p99)
	var held [3]int64
	for i := range held {
		if err := l.wave(ctx, o.streams); err != nil {
			return fmt.Errorf("%d streams: %w", o.streams, err)
		}
		if err := l.settle(ctx); err != nil {
			return err
		}
		held[i] = l.memory()
		progress("%d streams were open at one time and came to their end; after it Envoy holds %d, the door %d and the shim %d MB",
			o.streams, l.doorEnvoy.rss()>>20, l.doorProcess.rss()>>20, l.shim.rss()>>20)
	}
	l.promise(held[2] <= held[1]+held[1]/10+memorySlack, "memory grows: %d MB after two waves of streams, %d MB after the third", held[1]>>20, held[2]>>20)
	if err := l.verify(before); err != nil {
		return err
	}
	if err := l.verdict(); err != nil {
		return err
	}
	progress("passed: %d admissions, each served once and journaled once, nothing overflowed, nothing is left", l.sent.Load())
	return nil
}

// memorySlack is how much resident memory may grow from wave to wave beside a tenth: Go and Envoy give memory back late.
const memorySlack = 32 << 20

// loaded is a run of the load suite.
type loaded struct {
	*site
	sent     atomic.Int64 // requests with a whole answer
	p50, p99 float64
	broken   []breach
}

// breach is a promise that did not hold, with its first example.
type breach struct {
	promise, example string
	times            int
}

func (b breach) String() string {
	if b.times == 1 {
		return b.example
	}
	return fmt.Sprintf("%s (and %d more such)", b.example, b.times-1)
}

// promise notes one that does not hold. format names the promise.
func (l *loaded) promise(holds bool, format string, args ...any) {
	if holds {
		return
	}
	for i := range l.broken {
		if l.broken[i].promise == format {
			l.broken[i].times++
			return
		}
	}
	l.broken = append(l.broken, breach{format, fmt.Sprintf(format, args...), 1})
}

// verdict is nil when all promises held.
func (l *loaded) verdict() error {
	if len(l.broken) == 0 {
		return nil
	}
	text := "broken promises:"
	for _, b := range l.broken {
		text += "\n  " + b.String()
	}
	return errors.New(text)
}

// rateConns take turns at the steady rate; each sends when a request is due, so a slow answer delays others little.
const rateConns = 64

// rate sends perSecond requests a second, whatever comes back. Times count from when a request was due.
func (l *loaded) rate(ctx context.Context, perSecond int, lasting time.Duration) error {
	w := work{name: "steady rate", requests: requests(l.key, 1<<10, false), conns: rateConns}
	clients, err := l.clients(l.door, w, perSecond)
	defer closeAll(clients)
	if err != nil {
		return err
	}
	var due atomic.Int64
	total, start := int64(float64(perSecond)*lasting.Seconds()), time.Now()
	err = together(ctx, clients, func(c *client) error {
		for {
			n := due.Add(1) - 1
			if n >= total || ctx.Err() != nil {
				return ctx.Err()
			}
			at := start.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
			time.Sleep(time.Until(at))
			if err := c.run(1); err != nil {
				return err
			}
			l.sent.Add(1)
			c.took[len(c.took)-1] = time.Since(at)
		}
	})
	if err != nil {
		return fmt.Errorf("%d requests a second: %w", perSecond, err)
	}
	var took []time.Duration
	for _, c := range clients {
		took = append(took, c.took...)
	}
	l.p50, l.p99 = percentile(took, 50), percentile(took, 99)
	late := time.Since(start) - lasting
	l.promise(late < time.Second, "the rate of %d a second was not kept: the last answer came %v late", perSecond, late)
	return nil
}

func closeAll(cs []*client) {
	for _, c := range cs {
		c.conn.net.Close()
	}
}

// Each stream of a wave has so many chunks, paced so after all are open.
const (
	waveChunks = 12
	wavePace   = 500 * time.Millisecond
)

// wave opens n streams, and lets none go on before all have brought their first chunk.
func (l *loaded) wave(ctx context.Context, n int) error {
	w := work{name: "streams", requests: requests(l.key, 1<<10, true), conns: n, chunks: waveChunks}
	l.engine.chunks.Store(waveChunks)
	l.engine.pace.Store(int64(wavePace))
	clients, err := l.clients(l.door, w, 1)
	defer closeAll(clients)
	if err != nil {
		return err
	}
	release := sync.OnceFunc(l.engine.holding())
	defer release()
	ended, err := openAll(ctx, clients)
	if err != nil {
		return err
	}
	m, err := l.doorMetrics()
	if err != nil {
		return err
	}
	l.promise(m.sum("spokegate_flights_open") == float64(n), "%d streams are open, and %v flights", n, m.sum("spokegate_flights_open"))
	release()
	if err := <-ended; err != nil {
		return err
	}
	l.sent.Add(int64(n))
	return nil
}

// settle waits until the door holds nothing any more.
func (l *loaded) settle(ctx context.Context) error {
	limit := time.After(30 * time.Second)
	for {
		m, err := l.doorMetrics()
		if err != nil {
			return err
		}
		flights, bookings, meters := m.sum("spokegate_flights_open"), m.sum("spokegate_picker_worker_load"), m.sum("spokegate_meter_streams")
		if flights+bookings+meters == 0 && m.sum("spokegate_flight_ended_total") == float64(l.sent.Load()) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			l.promise(false, "after 30 s are left: %v flights, %v booked, %v meters; %v of %d usage records written",
				flights, bookings, meters, m.sum("spokegate_flight_ended_total"), l.sent.Load())
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (l *loaded) memory() (bytes int64) {
	for _, p := range []*process{l.doorEnvoy, l.doorProcess, l.shim} {
		bytes += p.rss()
	}
	return bytes
}

// openAll begins one stream a client and returns when all are open. ended is told when all have come to their end.
func openAll(ctx context.Context, clients []*client) (ended <-chan error, err error) {
	var opened sync.WaitGroup
	opened.Add(len(clients))
	for _, c := range clients {
		c.conn.first = opened.Done
	}
	ran := make(chan error, 1)
	go func() { ran <- together(ctx, clients, func(c *client) error { return c.run(1) }) }()
	all := make(chan struct{})
	go func() { opened.Wait(); close(all) }()
	select {
	case <-all:
		return ran, nil
	case err := <-ran:
		if err == nil {
			err = errors.New("they ended before all were open")
		}
		return nil, err
	case <-time.After(time.Minute):
		return nil, errors.New("they are not all open after a minute")
	}
}
