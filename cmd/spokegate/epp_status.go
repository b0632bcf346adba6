package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spokegate/spokegate/epp"
)

// opsFlags say where a running process's pages are.
type opsFlags struct {
	dir *string
	ops string
}

func (o *opsFlags) register(f *flag.FlagSet) {
	o.dir = dirFlag(f, "the `folder` of the door, or of `spokegate up`")
	f.StringVar(&o.ops, "ops", "", "`address` of the door's or the picker's pages, its -ops (default: as DIR/run/ops says)")
}

// find is the address of the pages.
func (o *opsFlags) find() (string, error) {
	if o.ops != "" {
		return o.ops, nil
	}
	data, err := os.ReadFile(filepath.Join(*o.dir, "run", opsFile))
	if err != nil {
		return "", fmt.Errorf("no door has run in %s; name its folder with -dir, or the address of its pages with -ops: %w", *o.dir, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// showPicker prints how the picker stands. It fails where a worker is degraded.
func showPicker(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("epp status", flag.ContinueOnError)
	var at opsFlags
	at.register(f)
	output := f.String("o", "text", "text or json")
	if err := parse(f, args); err != nil {
		return err
	}
	if *output != "text" && *output != "json" {
		return fmt.Errorf("-o %q: want text or json", *output)
	}
	ops, err := at.find()
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	status, text, err := get(ctx, client, "http://"+ops+"/epp")
	if err != nil {
		return fmt.Errorf("no picker answers at %s; is it running? %w", ops, err)
	}
	var st pickerStatus
	if status != http.StatusOK || json.Unmarshal([]byte(text), &st) != nil || st.Picker == "" {
		return fmt.Errorf("what answers at %s has no picker", ops)
	}
	if *output == "json" {
		fmt.Print(text)
	} else if err := st.print(os.Stdout); err != nil {
		return err
	}
	return st.degraded()
}

// degraded names workers whose blocks should be known.
func (st pickerStatus) degraded() error {
	var names []string
	for _, e := range st.Endpoints {
		for _, w := range e.Workers {
			if w.Index == epp.Degraded {
				names = append(names, w.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("degraded: %s", strings.Join(names, ", "))
}

// print makes a table an endpoint, and below it why workers are not indexed.
func (st pickerStatus) print(out io.Writer) error {
	for _, e := range st.Endpoints {
		fmt.Fprintf(out, "endpoint %s: picks: %d picked, %d busy, %d without a worker, %d none eligible; %d blocks announced, held %d times; %s\n",
			e.Name, e.Picks["picked"], e.Picks["busy"], e.Picks["no_worker"], e.Picks["none_eligible"], e.Blocks, e.Held, thresholds(e.Settings.Busy))
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "  WORKER\tADDRESS\tSTATE\tINDEX\tSINCE\tHELD\tPREFILL\tDECODE\tREQUESTS\tOTHERS\tENGINE\tLAST CHECK\tPARTED\tBUSY")
		for _, x := range e.Workers {
			fmt.Fprintln(w, "  "+strings.Join(pickerRow(st.At, x), "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for _, x := range e.Workers {
			if x.Reason != "" {
				fmt.Fprintf(out, "  %s: %s: %s\n", x.Name, x.Index, x.Reason)
			}
		}
	}
	return nil
}

func pickerRow(now time.Time, x epp.Worker) []string {
	address, since, engine, last := x.Address, "-", "-", "-"
	if x.Rank != nil {
		address = fmt.Sprintf("%s rank %d", address, *x.Rank)
	}
	if x.Role != "" {
		address += " " + x.Role
	}
	if x.Since != nil {
		since = elapsed(now, *x.Since)
	}
	if s := x.Said; s != nil {
		engine = fmt.Sprintf("%d+%d %.0f%%", s.Running, s.Waiting, 100*s.CacheUsed)
	}
	if c := x.Last; c != nil {
		reported := "?"
		if c.Reported != nil {
			reported = fmt.Sprint(*c.Reported)
		}
		last = fmt.Sprintf("%d→%d→%s", c.Best, c.Chosen, reported)
	}
	load := []string{"-", "-", "-", "-"}
	if x.Pickable {
		load = []string{fmt.Sprint(x.Prefill), fmt.Sprint(x.Decode), fmt.Sprint(x.Requests), fmt.Sprint(x.Others)}
	}
	row := append([]string{x.Name, address, x.State, x.Index, since, fmt.Sprint(x.Held)}, load...)
	return append(row, engine, last, fmt.Sprint(x.Parted), cmp.Or(x.Busy, "-"))
}

// thresholds in words.
func thresholds(b epp.Busy) string {
	var list []string
	if b.DecodeShare > 0 {
		list = append(list, fmt.Sprintf("decode share %g", b.DecodeShare))
	}
	if b.PrefillTokens > 0 {
		list = append(list, fmt.Sprintf("prefill tokens %d", b.PrefillTokens))
	}
	if b.Queue > 0 {
		list = append(list, fmt.Sprintf("queue %d", b.Queue))
	}
	if len(list) == 0 {
		return "never busy"
	}
	return "busy at " + strings.Join(list, ", ")
}
