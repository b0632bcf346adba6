package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options are what a run can be told.
type options struct {
	suite   string
	binary  string
	envoy   string
	out     string
	only    string
	dir     string
	threads int
	rounds  int
	timed   time.Duration
	streams int
	rate    int
	lasting time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.suite, "suite", "core", "core: the figures; load: many streams and a steady rate, pass or fail")
	flag.StringVar(&o.binary, "binary", "bin/spokegate", "the `binary` to measure")
	flag.StringVar(&o.envoy, "envoy", ".tools/envoy/envoy", "Envoy's `binary`")
	flag.StringVar(&o.out, "out", "bench.json", "`file` that the core suite writes; empty: none")
	flag.StringVar(&o.only, "only", "", "measure only figures whose name contains this `text`")
	flag.StringVar(&o.dir, "dir", "", "`folder` for logs and sockets, kept; empty: a temporary one, removed")
	flag.IntVar(&o.threads, "threads", 1, "Envoy's worker threads, on both sides")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each comparison")
	flag.DurationVar(&o.timed, "timed", 2*time.Second, "timed part of one side of one round")
	flag.IntVar(&o.streams, "streams", 1500, "load: streams at one time")
	flag.IntVar(&o.rate, "rate", 300, "load: requests a second")
	flag.DurationVar(&o.lasting, "lasting", time.Minute, "load: how long that rate is kept up")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if args := os.Getenv(spokesEnv); args != "" {
		if err := simulatedSpokes(ctx, args); err != nil {
			fmt.Fprintln(os.Stderr, "spokes:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.suite == suitePicker || o.suite == suitePasses { // started by pickerRequest
		return serve(ctx, o)
	}
	for _, need := range []string{o.binary, o.envoy} {
		if _, err := os.Stat(need); err != nil {
			return fmt.Errorf("%w; run `make build envoy` first", err)
		}
	}
	switch o.suite {
	case "core":
		return core(ctx, o)
	case "load":
		return load(ctx, o)
	}
	return errors.New("-suite: want core or load")
}

// wants says whether one of the figures is asked for.
func (o options) wants(names ...string) bool {
	for _, n := range names {
		if strings.Contains(n, o.only) {
			return true
		}
	}
	return false
}

// progress tells what happens now, on stderr, so that stdout is the table alone.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}
