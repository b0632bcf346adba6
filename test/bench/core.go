package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

// core measures all figures, prints them and writes them down.
func core(ctx context.Context, o options) error {
	start := time.Now()
	figures, err := inside(ctx, o)
	if err != nil {
		return err
	}
	across, err := beside(ctx, o)
	if err != nil {
		return err
	}
	figures = append(across, figures...)
	printTable(os.Stdout, figures)
	fmt.Printf("\n%d rounds of %v a side, in turn; a ratio is taken within its round, and the median shown. %v in all.\n",
		o.rounds, o.timed, time.Since(start).Round(time.Second))
	return writeFigures(o.out, figures)
}

// beside measures the door beside plain Envoy.
func beside(ctx context.Context, o options) (all []figure, err error) {
	if !o.wants("door.memory_stream", "door.memory_10k") && !slices.ContainsFunc((&site{}).comparisons(), func(c comparison) bool { return o.wants(c.names...) }) {
		return nil, nil
	}
	progress("starting a door, two Envoys and a shim")
	s, err := newSite(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if o.wants("door.memory_stream") { // first, while no earlier load has left room in the heaps
		f, err := s.memory(ctx, 1000)
		if err != nil {
			return nil, err
		}
		all = append(all, f...)
	}
	if o.wants("door.memory_10k") {
		f, err := s.meterMemory(ctx, 10_000)
		if err != nil {
			return nil, err
		}
		all = append(all, f...)
	}
	for _, c := range s.comparisons() {
		if !o.wants(c.names...) {
			continue
		}
		plain, door, err := s.compare(ctx, o, c.work)
		if err != nil {
			return nil, err
		}
		all = append(all, c.figures(plain, door)...)
	}
	return all, nil
}

// comparison is a piece of work and what it tells.
type comparison struct {
	names   []string
	work    work
	figures func(plain, door []result) []figure
}

const plainNote = "plain Envoy"

func (s *site) comparisons() []comparison {
	oneK, many, streams := requests(s.key, 1<<10, false), requests(s.key, 330<<10, false), requests(s.key, 1<<10, true)
	return []comparison{
		{[]string{"door.p50_1k", "door.p99_1k"}, work{name: "1 KB, one connection", requests: oneK, conns: 1},
			func(p, d []result) []figure { return latencies("1k", p, d) }},
		{[]string{"door.rps_1k", "door.cpu_1k", "door.cpu_envoy_1k", "door.cpu_door_1k"}, work{name: "1 KB, 16 connections", requests: oneK, conns: 16},
			func(p, d []result) []figure {
				return append([]figure{rates("1k", p, d)}, costs("1k", "ms/request", 1, p, d)...)
			}},
		{[]string{"door.p50_330k", "door.p99_330k", "door.rps_330k", "door.cpu_330k", "door.cpu_envoy_330k", "door.cpu_door_330k"},
			work{name: "330 KB, one connection", requests: many, conns: 1},
			func(p, d []result) []figure {
				return append(append(latencies("330k", p, d), rates("330k", p, d)), costs("330k", "ms/request", 1, p, d)...)
			}},
		{[]string{"door.stream_chunk", "door.cpu_chunk", "door.cpu_envoy_chunk", "door.cpu_door_chunk"},
			work{name: "200 streams at full speed", requests: streams, conns: 200, chunks: 100},
			func(p, d []result) []figure {
				return append([]figure{compared("door.stream_chunk", "µs/chunk", plainNote+", 200 streams at full speed", each(d, chunkOf), each(p, chunkOf))},
					costs("chunk", "µs/chunk", 1000./100, p, d)...)
			}},
		{[]string{"door.stream_chunk_500"}, // as above, with little of what a stream's opening costs
			work{name: "200 streams of 500 chunks at full speed", requests: streams, conns: 200, chunks: 500},
			func(p, d []result) []figure {
				return []figure{compared("door.stream_chunk_500", "µs/chunk", plainNote+", streams of 500 chunks, not 100", each(d, chunkOf), each(p, chunkOf))}
			}},
		{[]string{"door.stream_delay", "door.stream_delay_p99"},
			work{name: "200 streams, a chunk every 50 ms", requests: streams, conns: 200, chunks: 20, pace: 50 * time.Millisecond},
			func(p, d []result) []figure {
				const note = plainNote + ", engine's write to client's read, 4,000 chunks/s"
				return []figure{
					compared("door.stream_delay", "ms", note, each(d, func(r result) float64 { return r.delay }), each(p, func(r result) float64 { return r.delay })),
					compared("door.stream_delay_p99", "ms", note, each(d, func(r result) float64 { return r.delay9 }), each(p, func(r result) float64 { return r.delay9 })),
				}
			}},
	}
}

// compare runs the rounds, the sides in turn and each first in every second round.
func (s *site) compare(ctx context.Context, o options, w work) (plain, door []result, err error) {
	counts := map[string]int{}
	for _, t := range []target{s.plain, s.door} {
		if counts[t.name], err = s.calibrate(ctx, o, t, w); err != nil {
			return nil, nil, err
		}
	}
	for round := range o.rounds {
		got := map[string]result{}
		order := []target{s.plain, s.door}
		if round%2 == 1 {
			order[0], order[1] = order[1], order[0]
		}
		for _, t := range order {
			if got[t.name], err = s.side(ctx, t, w, counts[t.name]); err != nil {
				return nil, nil, err
			}
			if err := s.died(); err != nil {
				return nil, nil, err
			}
		}
		p, d := got["plain"], got["door"]
		plain, door = append(plain, p), append(door, d)
		progress("%s, round %d of %d: %.0f and plain %.0f requests/s (%.2f), p50 %.2f and %.2f ms (%.1f); CPU of Envoy %.2f, door %.2f, shim %.2f ms",
			w.name, round+1, o.rounds, d.rps, p.rps, d.rps/p.rps, d.p50, p.p50, d.p50/p.p50, d.envoy, d.door, d.shim)
	}
	return plain, door, nil
}

// calibrate finds how many requests take about the time wanted, and warms everything up by that.
func (s *site) calibrate(ctx context.Context, o options, t target, w work) (int, error) {
	n := w.conns
	for {
		start := time.Now()
		r, err := s.side(ctx, t, w, n)
		if err != nil {
			return 0, err
		}
		took := time.Duration(float64(n) / r.rps * float64(time.Second))
		if took > o.timed/4 || time.Since(start) > 2*o.timed {
			return max(w.conns, int(r.rps*o.timed.Seconds())), nil
		}
		n *= 4
	}
}

func each(rs []result, f func(result) float64) []float64 {
	out := make([]float64, len(rs))
	for i, r := range rs {
		out[i] = f(r)
	}
	return out
}

func chunkOf(r result) float64 { return r.chunk }

func rates(size string, p, d []result) figure {
	rps := func(r result) float64 { return r.rps }
	return compared("door.rps_"+size, "requests/s", plainNote, each(d, rps), each(p, rps))
}

func latencies(size string, p, d []result) []figure {
	p50, p99 := func(r result) float64 { return r.p50 }, func(r result) float64 { return r.p99 }
	return []figure{
		compared("door.p50_"+size, "ms", plainNote, each(d, p50), each(p, p50)),
		compared("door.p99_"+size, "ms", plainNote, each(d, p99), each(p, p99)),
	}
}

// costs are CPU times: of Envoy and door together, and of each. times scales milliseconds a request.
func costs(what, unit string, times float64, p, d []result) []figure {
	envoy := func(r result) float64 { return r.envoy * times }
	door := func(r result) float64 { return r.door * times }
	both := func(r result) float64 { return (r.envoy + r.door) * times }
	return []figure{
		compared("door.cpu_"+what, unit, plainNote, each(d, both), each(p, envoy)),
		compared("door.cpu_envoy_"+what, unit, plainNote, each(d, envoy), each(p, envoy)),
		compared("door.cpu_door_"+what, unit, plainNote+"'s own", each(d, door), each(p, envoy)),
	}
}
