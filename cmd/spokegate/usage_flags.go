package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spokegate/spokegate/usage"
)

// rangeFlags bound records by the time of admission.
type rangeFlags struct{ from, to past }

func (r *rangeFlags) register(f *flag.FlagSet) {
	f.Var(&r.from, "from", "only admissions at or after this `time`, such as 2026-01-31, 2026-01-31T15 or 2026-01-31T15:04:05Z (UTC), or so long ago, such as 48h, from the full hour on")
	f.Var(&r.to, "to", "only admissions before this `time`")
}

func (r *rangeFlags) check() error {
	if !r.from.IsZero() && !r.to.IsZero() && !r.from.Before(r.to.Time) {
		return fmt.Errorf("-from %v is not before -to %v", &r.from, &r.to)
	}
	return nil
}

func (r *rangeFlags) holds(t time.Time) bool {
	return !t.Before(r.from.Time) && (r.to.IsZero() || t.Before(r.to.Time))
}

// moment is a time on the command line.
type moment struct{ time.Time }

func (m *moment) String() string {
	if m.IsZero() {
		return ""
	}
	return m.Format(time.RFC3339)
}

func (m *moment) Set(s string) error {
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02T15", "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, s); err == nil {
			m.Time = t.UTC()
			return nil
		}
	}
	return errors.New("want a time such as 2026-01-31, 2026-01-31T15 or 2026-01-31T15:04:05Z")
}

// past is a moment that may also be told as how long ago it was: then it is the full hour before, since hours are what reports are of.
type past struct{ moment }

func (p *past) Set(s string) error {
	if ago, err := time.ParseDuration(s); err == nil && ago > 0 {
		p.Time = time.Now().UTC().Add(-ago).Truncate(time.Hour)
		return nil
	}
	if err := p.moment.Set(s); err != nil {
		return fmt.Errorf("%w, or how long ago it was, such as 48h", err)
	}
	return nil
}

func dirFlag(f *flag.FlagSet, help string) *string {
	return f.String("dir", cmp.Or(os.Getenv("SPOKEGATE_DIR"), ".spokegate"), help+" ($SPOKEGATE_DIR)")
}

// spoolOf finds the journals in a role's folder.
func spoolOf(dir string) (string, error) {
	spool := filepath.Join(dir, "spool")
	if _, err := os.Stat(spool); err != nil {
		return "", fmt.Errorf("no spool at %s: start `spokegate up`, or name the folder of a role that has run (-dir; -spools of the ledger)", spool)
	}
	return spool, nil
}

// recordKinds may be asked for; all is every one of them.
var recordKinds = []string{usage.KindUsage, usage.KindAdmitted, usage.KindServed, usage.KindRejected, usage.KindProbe, usage.KindEngine,
	usage.KindCheckpoint, usage.KindBalance, "all"}

var kindHelp = "`kind` of record: " + strings.Join(recordKinds, ", ")

// kindIs tells whether a kind may be asked for.
func kindIs(kind string) error {
	if slices.Contains(recordKinds, kind) {
		return nil
	}
	return fmt.Errorf("-kind %q: want one of %s", kind, strings.Join(recordKinds, ", "))
}

// badUsage tells what is wrong with a command line that could be parsed.
func badUsage(f *flag.FlagSet, err error) error {
	fmt.Fprintf(os.Stderr, "spokegate %s: %v\n", f.Name(), err)
	return errUsage
}

// listed splits what is separated by commas.
func listed(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}
