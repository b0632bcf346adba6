package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// exportUsage prints the records of the local spools that count: each id once, and a repair only where its original is lost.
func exportUsage(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("usage export", flag.ContinueOnError)
	dir := dirFlag(f, "the `folder` that a role keeps its files in")
	kind := f.String("kind", usage.KindUsage, "usage, admitted, served or all")
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
		_, err := w.Write(append(usage.AppendJSON(nil, r), '\n'))
		return err
	}
}

// csvRows writes a row of names, and then one a record. Its columns are the fields in the proto's order, so that new ones
// stand where they stand there: read them by name. An empty cell is unknown.
func csvRows(w io.Writer) func(*usagev1.Record) error {
	out := csv.NewWriter(w)
	fields := (&usagev1.Record{}).ProtoReflect().Descriptor().Fields()
	row := make([]string, fields.Len())
	begun := false
	return func(r *usagev1.Record) error {
		if !begun {
			begun = true
			for i := range row {
				row[i] = string(fields.Get(i).Name())
			}
			if err := out.Write(row); err != nil {
				return err
			}
		}
		for i := range row {
			row[i] = cell(r.ProtoReflect(), fields.Get(i))
		}
		if err := out.Write(row); err != nil {
			return err
		}
		out.Flush()
		return out.Error()
	}
}

func cell(r protoreflect.Message, f protoreflect.FieldDescriptor) string {
	if f.HasPresence() && !r.Has(f) {
		return ""
	}
	v := r.Get(f)
	switch {
	case f.IsList():
		list := v.List()
		words := make([]string, list.Len())
		for i := range words {
			words[i] = list.Get(i).String()
		}
		return harmless(strings.Join(words, " "))
	case f.IsMap():
		var words []string
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			words = append(words, k.String()+"="+v.String())
			return true
		})
		slices.Sort(words)
		return harmless(strings.Join(words, ";"))
	case f.Message() != nil:
		if t, is := v.Message().Interface().(*timestamppb.Timestamp); is && t.IsValid() {
			return t.AsTime().Format(time.RFC3339Nano)
		}
		return ""
	case f.Kind() == protoreflect.StringKind:
		return harmless(v.String())
	}
	return v.String()
}

// harmless marks as text what a spreadsheet would take for a formula: some of it is a client's own words.
func harmless(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
