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

// reconcileFlags of `usage reconcile`.
type reconcileFlags struct {
	rangeFlags
	dirs     string
	kafka    kafkaFlags
	settle   time.Duration
	repair   bool
	writeOff string
	as       string
	json     bool
}

func (r *reconcileFlags) register(f *flag.FlagSet) {
	r.rangeFlags.register(f)
	f.StringVar(&r.dirs, "dir", cmp.Or(os.Getenv("SPOKEGATE_DIR"), ".spokegate"), "the `folders` that roles keep their files in, comma-separated: their spools are read, or, with -kafka, what was shipped. Repairs are journaled in the first one ($SPOKEGATE_DIR)")
	r.kafka.register(f)
	f.DurationVar(&r.settle, "settle", time.Hour, "how long a request may be open and a record on its way; 0: nothing is running any more, judge everything")
	f.BoolVar(&r.repair, "repair", false, "write usage records from what workers served, for admissions that have none")
	f.StringVar(&r.writeOff, "write-off", "", "say of a `source`, such as worker/gpu-7, that it will never return: its gaps are listed and do not fail")
	host, _ := os.Hostname()
	f.StringVar(&r.as, "as", cmp.Or(host, "main"), "the `name` by which repairs are journaled; the source is repair/NAME")
	f.BoolVar(&r.json, "json", false, "print JSON")
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
	repairs := &repairJournal{dir: filepath.Join(listed(flags.dirs)[0], "spool"), source: balance.RepairSource(flags.as), kafka: flags.kafka}
	defer func() { err = errors.Join(err, repairs.close(ctx)) }()
	report, err := flags.audit(ctx, repairs)
	if err != nil {
		return err
	}
	if err := repairs.close(ctx); err != nil { // before anybody reads that they are written
		return err
	}
	if err := flags.print(report); err != nil {
		return err
	}
	if !report.Balanced {
		return fmt.Errorf("%d problems", report.Failing())
	}
	return nil
}

// check also makes sense of the environment: folders on the command line mean their spools, whatever it says of Kafka.
func (r *reconcileFlags) check(f *flag.FlagSet) error {
	named := map[string]bool{}
	f.Visit(func(f *flag.Flag) { named[f.Name] = true })
	if named["dir"] && !named["kafka"] {
		r.kafka.brokers = ""
	}
	switch {
	case len(listed(r.dirs)) == 0:
		return errors.New("-dir: no folder")
	case r.settle < 0:
		return fmt.Errorf("-settle %v: it cannot be below 0", r.settle)
	case strings.ContainsAny(r.as, "/ "):
		return fmt.Errorf("-as %q: a name without slashes and spaces is expected", r.as)
	case r.writeOff != "" && !strings.Contains(r.writeOff, "/"):
		return fmt.Errorf("-write-off %q: want a source such as worker/gpu-7", r.writeOff)
	}
	return errors.Join(r.kafka.complete(), r.rangeFlags.check())
}

func (r *reconcileFlags) open(ctx context.Context) (balance.Evidence, error) {
	if r.kafka.brokers != "" {
		return balance.OpenKafka(ctx, balance.KafkaConfig{Brokers: listed(r.kafka.brokers), Security: r.kafka.security}, r.from.Time)
	}
	var spools []string
	for _, dir := range listed(r.dirs) {
		spool, err := spoolOf(dir)
		if err != nil {
			return nil, err
		}
		spools = append(spools, spool)
	}
	return balance.OpenSpools(spools...)
}

func (r *reconcileFlags) audit(ctx context.Context, repairs *repairJournal) (*balance.Report, error) {
	opts := balance.Options{From: r.from.Time, To: r.to.Time, Now: time.Now(), Settle: r.settle}
	evidence, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	if r.writeOff != "" {
		opts.WriteOff = []string{r.writeOff}
		if err := repairs.write(ctx, balance.WriteOff(r.writeOff, opts.Now)); err != nil {
			return nil, err
		}
	}
	if r.repair {
		opts.Repair = func(rec *usagev1.Record) error { return repairs.write(ctx, rec) }
	}
	audit := balance.New(opts, evidence.Traits())
	defer audit.Close()
	progress := newProgress(os.Stderr)
	defer progress.end()
	if err := evidence.Read(ctx, audit.Add, progress.tell); err != nil {
		return nil, err
	}
	return audit.Balance()
}

func (r *reconcileFlags) print(report *balance.Report) error {
	if !r.json {
		return report.Write(os.Stdout)
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(report)
}
