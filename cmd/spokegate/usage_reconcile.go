package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage/balance"
)

// evidenceFlags say where records are read.
type evidenceFlags struct {
	dirs  string
	kafka kafkaFlags
}

func (e *evidenceFlags) register(f *flag.FlagSet) {
	f.StringVar(&e.dirs, "dir", cmp.Or(os.Getenv("SPOKEGATE_DIR"), ".spokegate"), "the `folders` that roles keep their files in, comma-separated: their spools are read, or, with -kafka, what was shipped. What is written is journaled in the first one ($SPOKEGATE_DIR)")
	e.kafka.register(f)
}

// check also makes sense of the environment: folders on the command line mean their spools, whatever it says of Kafka.
func (e *evidenceFlags) check(named map[string]bool) error {
	if named["dir"] && !named["kafka"] {
		e.kafka.brokers = ""
	}
	if len(listed(e.dirs)) == 0 {
		return errors.New("-dir: no folder")
	}
	return e.kafka.complete()
}

func (e *evidenceFlags) open(ctx context.Context, from time.Time) (balance.Evidence, error) {
	if e.kafka.brokers != "" {
		return balance.OpenKafka(ctx, balance.KafkaConfig{Brokers: listed(e.kafka.brokers), Security: e.kafka.security}, from)
	}
	var spools []string
	for _, dir := range listed(e.dirs) {
		spool, err := spoolOf(dir)
		if err != nil {
			return nil, err
		}
		spools = append(spools, spool)
	}
	return balance.OpenSpools(spools...)
}

// namedOf are the flags that stood on the command line.
func namedOf(f *flag.FlagSet) map[string]bool {
	named := map[string]bool{}
	f.Visit(func(f *flag.Flag) { named[f.Name] = true })
	return named
}

// reconcileFlags of `usage reconcile`.
type reconcileFlags struct {
	rangeFlags
	evidenceFlags
	settle   time.Duration
	cutBound int64
	trust    string
	repair   bool
	writeOff string
	publish  bool
	as       string
	json     bool
	metrics  string

	keys trustedKeys // of -trust; nil: none are pinned
}

func (r *reconcileFlags) register(f *flag.FlagSet) {
	r.rangeFlags.register(f)
	r.evidenceFlags.register(f)
	f.Int64Var(&r.cutBound, "cut-bound", balance.DefaultCutBound, "how many `tokens` more than its worker saw an engine may have counted for an answer that was cut")
	f.StringVar(&r.trust, "trust", "", "`file` of the keys that sources may sign by, as `spokegate usage keys` prints them; empty: a source's first key is believed")
	f.BoolVar(&r.publish, "publish", false, "journal what was found as records of kind balance, and ship them with -kafka, where it is on unless -publish=false")
	f.DurationVar(&r.settle, "settle", time.Hour, "how long a request may be open and a record on its way; 0: nothing is running any more, judge everything")
	f.BoolVar(&r.repair, "repair", false, "write usage records from what workers served, for admissions that have none")
	f.StringVar(&r.writeOff, "write-off", "", "say of a `source`, such as worker/gpu-7, that it will never return: its gaps are listed and do not fail")
	host, _ := os.Hostname()
	f.StringVar(&r.as, "as", cmp.Or(host, "main"), "the `name` by which this run journals; its sources are repair/NAME and balance/NAME")
	f.BoolVar(&r.json, "json", false, "print JSON")
	f.StringVar(&r.metrics, "metrics", "", "`file` that what was found is written into as metrics, for node_exporter's textfile collector: NAME.prom")
}

// reconcileUsage proves the records, or names what stands against them.
func reconcileUsage(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("usage reconcile", flag.ContinueOnError)
	var flags reconcileFlags
	flags.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if err := flags.check(f); err != nil {
		return badUsage(f, err)
	}
	spool := filepath.Join(listed(flags.dirs)[0], "spool")
	repairs := &runJournal{dir: spool, source: balance.RepairSource(flags.as), kafka: flags.kafka}
	defer func() { err = errors.Join(err, repairs.close(ctx)) }()
	report, err := flags.audit(ctx, repairs)
	if err != nil {
		return err
	}
	if err := repairs.close(ctx); err != nil { // before anybody reads that they are written
		return err
	}
	err = flags.tell(report)
	if flags.publish {
		err = errors.Join(err, publish(ctx, report, &runJournal{dir: spool, source: balance.PublishSource(flags.as), kafka: flags.kafka}))
	}
	if !report.Balanced {
		err = errors.Join(fmt.Errorf("it does not balance, problems: %d", report.Failing()), err)
	}
	return err
}

// publish journals what was found.
func publish(ctx context.Context, report *balance.Report, to *runJournal) error {
	for _, r := range report.Published() {
		if err := to.write(ctx, r); err != nil {
			return errors.Join(err, to.close(ctx))
		}
	}
	return to.close(ctx)
}

func (r *reconcileFlags) check(f *flag.FlagSet) (err error) {
	named := namedOf(f)
	switch {
	case r.settle < 0:
		return fmt.Errorf("-settle %v: it cannot be below 0", r.settle)
	case r.cutBound < 0:
		return fmt.Errorf("-cut-bound %d: it cannot be below 0", r.cutBound)
	case strings.ContainsAny(r.as, "/ "):
		return fmt.Errorf("-as %q: a name without slashes and spaces is expected", r.as)
	case r.writeOff != "" && !strings.Contains(r.writeOff, "/"):
		return fmt.Errorf("-write-off %q: want a source such as worker/gpu-7", r.writeOff)
	}
	if err := errors.Join(r.evidenceFlags.check(named), r.rangeFlags.check()); err != nil {
		return err
	}
	if !named["publish"] {
		r.publish = r.kafka.brokers != ""
	}
	if r.trust != "" {
		r.keys, err = readTrust(r.trust)
	}
	return err
}

func (r *reconcileFlags) audit(ctx context.Context, repairs *runJournal) (*balance.Report, error) {
	opts := balance.Options{From: r.from.Time, To: r.to.Time, Now: time.Now(), Settle: r.settle, CutBound: r.cutBound}
	evidence, err := r.open(ctx, r.from.Time)
	if err != nil {
		return nil, err
	}
	if r.writeOff != "" {
		opts.WriteOff = []string{r.writeOff}
		if err := repairs.write(ctx, balance.WriteOff(r.writeOff, opts.Now)); err != nil {
			return nil, err
		}
	}
	if r.keys != nil {
		opts.Trusts = r.keys.has
	}
	if r.repair {
		opts.Repair = func(rec *usagev1.Record) error { return repairs.write(ctx, rec) }
	}
	audit := balance.New(opts, evidence.Traits())
	defer audit.Close()
	progress := newProgress(os.Stderr)
	defer progress.end()
	if err := evidence.Read(ctx, audit.Add, progress.of("read")); err != nil {
		return nil, err
	}
	return audit.Balance(progress.of("judged"))
}

// tell prints the report also where its metrics cannot be written: it may have taken long, and repaired something.
func (r *reconcileFlags) tell(report *balance.Report) (err error) {
	if r.metrics != "" {
		err = writeBalanceMetrics(r.metrics, report)
	}
	if !r.json {
		return errors.Join(report.Write(os.Stdout), err)
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return errors.Join(e.Encode(report), err)
}
