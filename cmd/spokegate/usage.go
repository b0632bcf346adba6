package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

func runUsage(ctx context.Context, args []string) error {
	sub, rest, err := pickSub("usage", args, map[string]role{"tail": tailUsage})
	if err != nil {
		return err
	}
	return sub(ctx, rest)
}

// tailUsage prints records as JSON lines: those that are there, and then each as it comes.
func tailUsage(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("usage tail", flag.ContinueOnError)
	dir := f.String("dir", cmp.Or(os.Getenv("SPOKEGATE_DIR"), ".spokegate"), "the `folder` that `spokegate up` keeps its files in ($SPOKEGATE_DIR)")
	kind := f.String("kind", usage.KindUsage, "usage, admitted, served or all")
	follow := f.Bool("follow", true, "go on until interrupted; -follow=false stops at the last record")
	if err := parse(f, args); err != nil {
		return err
	}
	switch *kind {
	case usage.KindUsage, usage.KindAdmitted, usage.KindServed, "all":
	default:
		return fmt.Errorf("-kind %q: want usage, admitted, served or all", *kind)
	}
	spool := filepath.Join(*dir, "spool")
	if _, err := os.Stat(spool); err != nil {
		return fmt.Errorf("no spool at %s: start `spokegate up`, or name its folder with -dir", spool)
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
	var err error
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
