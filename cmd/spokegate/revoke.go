package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// revocation is one call of `policy revoke`.
type revocation struct {
	dir    string // of the last good policy
	key    string
	undo   bool
	out    io.Writer
	warn   func(format string, args ...any)
	moment time.Time
}

// revokeKey refuses a key on this spoke, without the hub and over whatever policy comes; -list and -undo look after it.
func revokeKey(_ context.Context, args []string) error {
	f := flag.NewFlagSet("policy revoke", flag.ContinueOnError)
	dir := f.String("dir", cmp.Or(os.Getenv("SPOKEGATE_DIR"), ".spokegate"), "the `folder` of the door, or of `spokegate up` ($SPOKEGATE_DIR)")
	issuer := f.String("issuer", "", "KEY is a subject (the claim sub) of the JWTs of this `issuer` of the policy")
	undo := f.Bool("undo", false, "take the revocation of KEY back")
	list := f.Bool("list", false, "show what is revoked here, and since when")
	if err := parseAround(f, args, list); err != nil {
		return err
	}
	r := revocation{
		dir: filepath.Join(*dir, "policy"), undo: *undo, out: os.Stdout, moment: time.Now(),
		warn: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "warning: "+format+"\n", args...) },
	}
	if _, err := os.Stat(r.dir); err != nil {
		return fmt.Errorf("no door keeps its policy here; name its folder with -dir: %w", err)
	}
	if *list {
		return r.list()
	}
	key := f.Arg(0)
	if *issuer != "" {
		key = policy.SubjectID(*issuer, key)
	}
	var err error
	if r.key, err = policy.ParseRevocable(key); err != nil {
		return err
	}
	return r.edit()
}

// parseAround is parse for KEY with flags on either side of it, and for no KEY where alone is set.
func parseAround(f *flag.FlagSet, args []string, alone *bool) error {
	err := explained(f, explain(f, "KEY"), f.Parse(args))
	switch {
	case err != nil:
		return err
	case *alone:
		return parse(f, f.Args())
	case f.NArg() > 1:
		args = append(slices.Clone(f.Args()[1:]), f.Arg(0))
	}
	return parse(f, args, "KEY")
}

func (r revocation) list() error {
	list, err := policy.LoadRevoked(r.dir)
	for _, e := range list {
		fmt.Fprintf(r.out, "%s  %s\n", e.At.UTC().Format(time.RFC3339), e.Key)
	}
	return err
}

func (r revocation) edit() error {
	done := ""
	err := policy.EditRevoked(r.dir, func(list []policy.Revocation) ([]policy.Revocation, error) {
		i := slices.IndexFunc(list, func(e policy.Revocation) bool { return e.Key == r.key })
		switch {
		case r.undo && i < 0:
			return nil, fmt.Errorf("%s is not revoked here; -list shows what is", r.key)
		case r.undo:
			done = "no longer revoked here: " + r.key + " (the policy may still refuse it)"
			return slices.Delete(list, i, i+1), nil
		case i >= 0:
			done = "revoked here already: " + r.key
			return list, nil
		}
		done = "revoked: " + r.key
		return append(list, policy.Revocation{Key: r.key, At: r.moment}), nil
	})
	if err != nil {
		return err
	}
	if !r.undo {
		r.warnUnknown()
	}
	fmt.Fprintln(r.out, done)
	fmt.Fprintf(r.out, "A door that runs on %s takes it up within a second; the spoke's other doors have lists of their own.\n", filepath.Dir(r.dir))
	return nil
}

// warnUnknown says that a revocation refuses nobody yet: perhaps its key is written wrongly.
func (r revocation) warnUnknown() {
	cut, err := policy.Load(r.dir)
	if cut == nil {
		r.warn("it is not known whether there is such a key: %v", err)
		return
	}
	s, err := policy.CompileKept(cut, r.moment)
	switch {
	case err != nil:
		r.warn("it is not known whether there is such a key: %v", err)
	case !s.Knows(r.key):
		r.warn("revision %d knows no key %s; it is kept, and refused should it come", s.Revision(), r.key)
	}
}
