package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spokegate/spokegate/replay"
)

func runBench(ctx context.Context, args []string) error {
	r, rest, err := pickSub("bench", args, map[string]role{"route": runBenchRoute})
	if err != nil {
		return err
	}
	return r(ctx, rest)
}

// benchFlags of `bench route`.
type benchFlags struct {
	trace  string
	rates  string
	load   replay.Load
	run    replay.Options
	output string
	svg    string
}

func (b *benchFlags) register(f *flag.FlagSet) {
	d := replay.Defaults
	f.StringVar(&b.trace, "trace", "", "the `file` to replay: a session or a request a line, as docs/routing.md tells; .gz is unpacked (none: sessions are generated)")
	f.StringVar(&b.rates, "rate", "1", "requests a `second`, all workers together; several, comma-separated, are replayed one after the other. 0: as the trace says")
	f.Float64Var(&b.load.Pause, "pause", 60, "the longest that a session waits between two requests, in `seconds`; 0: as long as the trace says")
	f.IntVar(&b.load.Sessions, "sessions", 0, "how many sessions (or requests) of the trace `at most`; 0: all of it, or 100 generated ones")
	f.Uint64Var(&b.load.Seed, "seed", 1, "of when sessions begin, and of what is generated")
	f.IntVar(&b.run.Fleet.Workers, "workers", d.Fleet.Workers, "how `many` workers")
	f.IntVar(&b.run.Fleet.CacheTokens, "cache-tokens", d.Fleet.CacheTokens, "`tokens` that the cache of each worker holds")
	f.Float64Var(&b.run.Fleet.Prefill, "prefill", d.Fleet.Prefill, "prompt `tokens a second` that each worker computes")
	f.Float64Var(&b.run.Fleet.Decode, "decode", d.Fleet.Decode, "`tokens a second` of each answer")
	f.Float64Var(&b.run.Fleet.Delay, "delay", d.Fleet.Delay, "how long an announcement of blocks takes, in `seconds`; true-state needs none")
	f.Float64Var(&b.run.Fleet.OverlapWeight, "overlap-weight", d.Fleet.OverlapWeight, "the policy's routing.overlap_weight")
	f.Float64Var(&b.run.Fleet.MissWeight, "miss-weight", d.Fleet.MissWeight, "the policy's routing.miss_weight")
	f.Float64Var(&b.run.WarmUp, "warm-up", d.WarmUp, "the `share` of requests that come first and are not judged")
	f.Float64Var(&b.run.InTime, "in-time", d.InTime, "how late a first token may be to count for the goodput, in `seconds`")
	f.StringVar(&b.output, "o", "table", "`table` or json")
	f.StringVar(&b.svg, "svg", "", "also draw plots into this `folder`, which is made")
}

func (b *benchFlags) check() ([]float64, error) {
	var rates []float64
	for _, s := range listed(b.rates) {
		r, err := strconv.ParseFloat(s, 64)
		if err != nil || !(r >= 0 && r <= 1e6) {
			return nil, fmt.Errorf("-rate: %q is not a number of requests a second", s)
		}
		rates = append(rates, r)
	}
	switch {
	case len(rates) == 0:
		return nil, errors.New("-rate: none")
	case b.output != "table" && b.output != "json":
		return nil, fmt.Errorf("-o: table or json expected, not %q", b.output)
	case !(b.load.Pause >= 0):
		return nil, errors.New("-pause: want no less than 0")
	case b.load.Sessions < 0:
		return nil, errors.New("-sessions: want no less than 0")
	}
	return rates, b.run.Check()
}

// benchReport is one replay at one load, as JSON gives it.
type benchReport struct {
	Trace    string          `json:"trace"`
	Requests int             `json:"requests"`
	Seconds  float64         `json:"seconds"`
	Rate     float64         `json:"rate"` // of requests, as it came out
	Seed     uint64          `json:"seed"`
	Options  replay.Options  `json:"options"`
	Results  []replay.Result `json:"results"` // the last one is the bound
}

func runBenchRoute(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("bench route", flag.ContinueOnError)
	var b benchFlags
	b.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	rates, err := b.check()
	if err != nil {
		return err
	}
	for _, rate := range rates {
		b.load.Rate = rate
		report, err := b.replay(ctx)
		if err != nil {
			return err
		}
		if err := b.show(report); err != nil {
			return err
		}
	}
	return nil
}

func (b *benchFlags) read() (*replay.Trace, error) {
	if b.trace != "" {
		return replay.Read(b.trace, b.load)
	}
	t, err := replay.Generate(b.load)
	if err != nil {
		return nil, fmt.Errorf("generated: %w", err)
	}
	return t, nil
}

// replay is one load, in all ways.
func (b *benchFlags) replay(ctx context.Context) (*benchReport, error) {
	t, err := b.read()
	if err != nil {
		return nil, err
	}
	out := &benchReport{Trace: t.Name, Requests: len(t.Requests), Seconds: t.Seconds(), Seed: b.load.Seed, Options: b.run}
	out.Rate = float64(out.Requests) / out.Seconds
	for i, way := range replay.Ways {
		start := time.Now()
		fmt.Fprintf(os.Stderr, "%d of %d: %s …", i+1, len(replay.Ways), way)
		res, err := replay.Run(ctx, t, way, b.run)
		if err != nil {
			fmt.Fprintln(os.Stderr)
			return nil, err
		}
		fmt.Fprintf(os.Stderr, " %.1f s\n", time.Since(start).Seconds())
		out.Results = append(out.Results, res)
	}
	out.Results = append(out.Results, replay.Bound(t, b.run))
	return out, nil
}

func (b *benchFlags) show(r *benchReport) error {
	if b.svg != "" {
		if err := os.MkdirAll(b.svg, 0o755); err != nil {
			return err
		}
		title := fmt.Sprintf("%.3g requests/s, %d workers", r.Rate, b.run.Fleet.Workers)
		for name, plot := range map[string][]byte{"ttft": replay.PlotTTFT(title, r.Results), "tokens": replay.PlotTokens(title, r.Results)} {
			path := filepath.Join(b.svg, fmt.Sprintf("%s-%g.svg", name, b.load.Rate))
			if err := os.WriteFile(path, plot, 0o644); err != nil {
				return err
			}
		}
	}
	if b.output == "json" {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	return r.table()
}

// table also holds every way against what the router would do if it knew all caches as they are.
func (r *benchReport) table() error {
	o := r.Options
	fmt.Printf("%s: %d requests in %.0f s, %.3g a second; the first %g are warm-up\n", r.Trace, r.Requests, r.Seconds, r.Rate, o.WarmUp)
	fmt.Printf("%d workers: cache %d tokens, prefill %g tokens/s, decode %g tokens/s; announced after %g s; overlap weight %g, miss weight %g; in time: %g s\n\n",
		o.Fleet.Workers, o.Fleet.CacheTokens, o.Fleet.Prefill, o.Fleet.Decode, o.Fleet.Delay, o.Fleet.OverlapWeight, o.Fleet.MissWeight, o.InTime)
	truth := replay.Result{}
	for _, res := range r.Results {
		if res.Way == "true-state" {
			truth = res
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "way\thit rate\tof true\tprefilled\tof true\tTTFT p50\tp99\tof true\timbalance\tin time/s\t")
	of := func(a, b float64) string {
		if b == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f", a/b)
	}
	for _, res := range r.Results {
		fmt.Fprintf(w, "%s\t%.4f\t%s\t%.1fM\t%s\t", res.Way, res.HitRate, of(res.HitRate, truth.HitRate), float64(res.Prefilled)/1e6, of(float64(res.Prefilled), float64(truth.Prefilled)))
		if res.Way == replay.BoundName {
			fmt.Fprintln(w, "\t\t\t\t\t")
			continue
		}
		fmt.Fprintf(w, "%.2f s\t%.2f s\t%s\t%.2f\t%.3f\t\n", res.TTFT50, res.TTFT99, of(res.TTFT99, truth.TTFT99), res.Imbalance, res.Goodput)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println()
	return nil
}
