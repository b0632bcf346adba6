package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spokegate/spokegate/hub/api"
)

// spokeStatus tells what each door holds. It fails where one holds another revision than the latest.
func spokeStatus(ctx context.Context, args []string) error {
	c, given, err := hubCommand("spoke status", args, nil, "[SPOKE]")
	if err != nil {
		return err
	}
	var st api.Status
	if err := c.ask(ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return err
	}
	if len(given) > 0 {
		if st.Spokes = only(st.Spokes, given[0]); st.Spokes == nil {
			return fmt.Errorf("the hub has no spoke %s; spokegate spoke list tells those that it has", given[0])
		}
	}
	if c.json {
		if err := printJSON(st); err != nil {
			return err
		}
	} else if err := printStatus(os.Stdout, st, time.Now()); err != nil {
		return err
	}
	return behind(st)
}

func only(list []api.SpokeStatus, name string) []api.SpokeStatus {
	for _, s := range list {
		if s.Name == name {
			return []api.SpokeStatus{s}
		}
	}
	return nil
}

// printStatus makes a table, a line a door, and below it what is wrong.
func printStatus(out io.Writer, st api.Status, now time.Time) error {
	fmt.Fprintf(out, "revision %d", st.Revision)
	if st.At != nil {
		fmt.Fprintf(out, ", %s", day(*st.At))
	}
	fmt.Fprintln(out)
	var rows [][]string
	var notes []string
	for _, s := range st.Spokes {
		if len(s.Doors) == 0 {
			rows = append(rows, []string{s.Name, "", "never connected", "", "", "", "", "", ""})
		}
		for _, d := range s.Doors {
			rows = append(rows, doorRow(st.Revision, d, now))
			for _, n := range doorNotes(d) {
				notes = append(notes, d.Spoke+"/"+d.Door+" "+n)
			}
		}
	}
	if err := table(out, "SPOKE DOOR STATE REVISION HELD WORKERS SPOOL LIMITS VERSION", rows); err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(out, printable(n))
	}
	return nil
}

// doorNotes are what a table has no room for.
func doorNotes(d api.Replica) (list []string) {
	if d.Ahead {
		list = append(list, fmt.Sprintf("holds revision %d, and takes nothing from this hub until numbers are above it, not even a key that is revoked: "+
			"the hub's database is an old copy. See Restore in docs/hub.md; then start the hub with -continue-above %d", d.Revision, d.Revision))
	} else if d.Reason != "" {
		list = append(list, fmt.Sprintf("refuses revision %d: %s", d.Refused, d.Reason))
	}
	if d.FromDisk {
		list = append(list, "acts on what it had on its disk")
	}
	if d.LimitsLocal {
		list = append(list, "counts limits by itself: "+d.Limits)
	}
	if d.SpoolLost > 0 {
		list = append(list, "has lost "+plural(int(d.SpoolLost), "usage record"))
	}
	for _, p := range d.Problems {
		list = append(list, "reports: "+p)
	}
	for _, key := range d.Revoked {
		list = append(list, "refuses "+key+" by itself")
	}
	return list
}

func doorRow(latest uint64, d api.Replica, now time.Time) []string {
	state, revision, held, limits := "in step", "", "", "shared"
	switch {
	case !d.Connected:
		state = "away for " + elapsed(now, d.Since)
	case d.Ahead:
		state = "AHEAD"
	case d.Refused > 0:
		state = "refuses " + strconv.FormatUint(d.Refused, 10)
	case d.Revision < latest:
		state = strconv.FormatUint(latest-d.Revision, 10) + " behind"
	}
	if d.Revision > 0 {
		revision = strconv.FormatUint(d.Revision, 10)
	}
	if d.HeldSince != nil {
		held = elapsed(now, *d.HeldSince)
	}
	if d.LimitsLocal || strings.HasPrefix(d.Limits, "in memory") { // the store is away, or there is none
		limits = "local"
	}
	if d.Reported == nil {
		return []string{d.Spoke, d.Door, state, revision, held, "", "", "", ""}
	}
	return []string{d.Spoke, d.Door, state, revision, held, fmt.Sprintf("%d of %d", d.WorkersReady, d.Workers), size(d.SpoolBytes), limits, d.Version}
}

// size is a number of bytes for people.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// behind names the doors that do not hold the latest revision.
func behind(st api.Status) error {
	n := 0
	for _, s := range st.Spokes {
		for _, d := range s.Doors {
			if !d.Connected || d.Revision != st.Revision {
				n++
			}
		}
	}
	if n > 0 {
		return fmt.Errorf("%s not hold revision %d", plural(n, "door")+map[bool]string{true: " does", false: " do"}[n == 1], st.Revision)
	}
	return nil
}

// spokeDeployment prints what a spoke is to run.
func spokeDeployment(ctx context.Context, args []string) error {
	c, given, err := hubCommand("spoke deployment", args, nil, "SPOKE")
	if err != nil {
		return err
	}
	text, err := c.send(ctx, http.MethodGet, "/v1/deployments/"+url.PathEscape(given[0]), "", nil)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}
