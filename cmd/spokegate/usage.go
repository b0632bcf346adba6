package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"os"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

func runUsage(ctx context.Context, args []string) error {
	sub, rest, err := pickSub("usage", args, map[string]role{"tail": tailUsage, "export": exportUsage, "reconcile": reconcileUsage, "keys": keysUsage, "ledger": ledgerUsage})
	if err != nil {
		return err
	}
	return sub(ctx, rest)
}

// tailUsage prints records as JSON lines: those that are there, and then each as it comes.
func tailUsage(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("usage tail", flag.ContinueOnError)
	dir := dirFlag(f, "the `folder` that `spokegate up` keeps its files in")
	kind := f.String("kind", usage.KindUsage, kindHelp)
	follow := f.Bool("follow", true, "go on until interrupted; -follow=false stops at the last record")
	if err := parse(f, args); err != nil {
		return err
	}
	if err := kindIs(*kind); err != nil {
		return err
	}
	spool, err := spoolOf(*dir)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	print := func(r *usagev1.Record) error {
		if *kind != "all" && r.GetKind() != *kind {
			return nil
		}
		if _, err := out.Write(append(usage.AppendJSON(nil, r), '\n')); err != nil {
			return err
		}
		if *follow {
			return out.Flush() // somebody may be watching
		}
		return nil
	}
	if *follow {
		err = usage.Tail(ctx, spool, print)
	} else {
		_, err = usage.Read(spool, print)
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, out.Flush())
}
