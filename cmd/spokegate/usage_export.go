package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// exportUsage prints the records of the local spools that count: each id once, and a repair only where its original is lost.
func exportUsage(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("usage export", flag.ContinueOnError)
	dir := dirFlag(f, "the `folder` that a role keeps its files in")
	kind := f.String("kind", usage.KindUsage, kindHelp)
	format := f.String("format", "jsonl", "jsonl (a JSON object a line) or csv")
	var within rangeFlags
	within.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	write := map[string]func(*usagev1.Record) error{"jsonl": jsonLines(out), "csv": csvRows(out)}[*format]
	if write == nil {
		return badUsage(f, fmt.Errorf("-format %q: want jsonl or csv", *format))
	}
	if err := errors.Join(kindIs(*kind), within.check()); err != nil {
		return badUsage(f, err)
	}
	spool, err := spoolOf(*dir)
	if err != nil {
		return err
	}
	_, err = usage.ReadOnce(spool, func(r *usagev1.Record) error {
		if *kind != "all" && r.GetKind() != *kind || !within.holds(recordTime(r)) {
			return ctx.Err()
		}
		return errors.Join(write(r), ctx.Err())
	})
	return errors.Join(err, out.Flush())
}

// recordTime is when the request was admitted, or, of a worker's record, when it ended.
func recordTime(r *usagev1.Record) time.Time {
	if r.AdmittedAt != nil {
		return r.AdmittedAt.AsTime()
	}
	return r.EndedAt.AsTime()
}

func jsonLines(w io.Writer) func(*usagev1.Record) error {
	return func(r *usagev1.Record) error {
		_, err := w.Write(append(usage.AppendDerivedJSON(nil, r), '\n'))
		return err
	}
}
