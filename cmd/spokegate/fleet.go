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
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// opsFile, in DIR/run, says where a door's pages are.
const opsFile = "ops"

func runFleet(ctx context.Context, args []string) error {
	sub, rest, err := pickSub("fleet", args, map[string]role{"status": showFleet})
	if err != nil {
		return err
	}
	return sub(ctx, rest)
}

// showFleet prints a door's workers. It fails where an endpoint of the policy has none that can be picked.
func showFleet(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("fleet status", flag.ContinueOnError)
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
	text, st, err := askFleet(ctx, ops)
	if err != nil {
		return err
	}
	if *output == "json" {
		fmt.Print(text)
	} else if err := st.print(os.Stdout); err != nil {
		return err
	}
	return st.lacking()
}

// askFleet reads a door's page.
func askFleet(ctx context.Context, ops string) (text string, st fleetStatus, err error) {
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	status, text, err := get(ctx, client, "http://"+ops+"/fleet")
	switch {
	case err != nil:
		return "", st, fmt.Errorf("no door answers at %s; is it running? %w", ops, err)
	case status != http.StatusOK:
		return "", st, fmt.Errorf("%s answers %d: it is no door's -ops", ops, status)
	}
	if err := json.Unmarshal([]byte(text), &st); err != nil || st.Door == "" {
		return "", st, fmt.Errorf("what answers at %s is no door", ops)
	}
	return text, st, nil
}

// lacking names the endpoints that nobody serves.
func (st fleetStatus) lacking() error {
	var names []string
	for _, e := range st.Endpoints {
		if e.Pickable == 0 {
			names = append(names, e.Name)
		}
	}
	switch {
	case len(st.Endpoints) == 0:
		return fmt.Errorf("%s has no policy that names an endpoint", st.Door)
	case len(names) > 0:
		return fmt.Errorf("endpoints without a worker that can be picked: %s", strings.Join(names, ", "))
	}
	return nil
}

// print makes a table, and below it what is wrong with whom.
func (st fleetStatus) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKER\tENDPOINT\tSTATE\tPICKED\tRUNNING\tWAITING\tCACHE\tENGINE\tBLOCK\tINDEX\tEPOCH\tADDRESS\tJOINED\tBEAT")
	for _, x := range st.Workers {
		fmt.Fprintln(w, strings.Join(st.row(x), "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, x := range st.Workers {
		for _, why := range x.notes() {
			fmt.Fprintf(out, "%s: %s\n", x.Name, why)
		}
		if !slices.ContainsFunc(st.Endpoints, func(e endpointStatus) bool { return e.Name == x.Endpoint }) {
			fmt.Fprintf(out, "%s: the policy has no endpoint %s\n", x.Name, x.Endpoint)
		}
	}
	if !st.Envoy {
		fmt.Fprintf(out, "%s: Envoy is not connected\n", st.Door)
	}
	for _, e := range st.Endpoints {
		fmt.Fprintf(out, "endpoint %s: %d of %s can be picked\n", e.Name, e.Pickable, plural(e.Workers, "worker"))
	}
	return nil
}

func (st fleetStatus) row(x workerStatus) []string {
	running, waiting, cache, block, pick := fmt.Sprint(x.Running), "-", "-", "-", "no"
	if l := x.Load; l != nil {
		running, waiting, cache = fmt.Sprint(l.Running), fmt.Sprint(l.Waiting), fmt.Sprintf("%.0f%%", 100*l.CacheUsed)
	}
	if x.BlockSize > 0 {
		block = fmt.Sprint(x.BlockSize)
	}
	if x.Pickable {
		pick = "yes"
	}
	state := x.State
	if len(x.Degraded) > 0 {
		state += ", degraded"
	}
	engine := x.Engine
	if x.Ranks > 1 {
		engine += fmt.Sprintf(" x%d", x.Ranks)
	}
	if x.Role != "" {
		engine += " (" + x.Role + ")"
	}
	return []string{x.Name, x.Endpoint, state, pick, running, waiting, cache, engine, block, cmp.Or(x.Index, "-"), x.Epoch[:min(8, len(x.Epoch))], x.Address,
		elapsed(st.At, x.Joined), elapsed(st.At, x.Beat)}
}

// notes are what a table has no room for.
func (x workerStatus) notes() (list []string) {
	if x.Reason != "" {
		list = append(list, x.State+": "+x.Reason)
	}
	if x.IndexReason != "" {
		list = append(list, "index "+x.Index+": "+x.IndexReason)
	}
	for _, d := range x.Degraded {
		list = append(list, "degraded: "+d)
	}
	return list
}

// elapsed is how long before now something was, in its two largest units.
func elapsed(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	d := max(now.Sub(then), 0).Round(time.Second)
	switch days, hours, minutes := int(d.Hours())/24, int(d.Hours())%24, int(d.Minutes())%60; {
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh%dm", hours, minutes)
	}
	return d.String()
}
