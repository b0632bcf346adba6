package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/spokegate/spokegate/identity"
)

// TestScenarios runs the texts in testdata on both databases.
//
// Commands: commit (lines "put KIND NAME BODY [if=N]", "drop KIND NAME [if=N]"; as=, teams=, idem=, base=, message=), show,
// list, diff, rollback, create-key, rotate, revoke, revisions, audit, wait, report, import, models.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			thePostgres.OnBoth(t, func(t *testing.T, database string) {
				clock := newClock()
				s := &scenario{h: opened(t, Config{Database: database, Now: clock.now}), clock: clock, hashes: map[string]string{}}
				datadriven.RunTest(t, file, s.run)
			})
		})
	}
}

type scenario struct {
	h      *Hub
	clock  *clock
	hashes map[string]string // of made keys, by what stands for them
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	arg := func(name string) string {
		for _, a := range d.CmdArgs {
			if a.Key == name {
				return strings.Join(a.Vals, " ")
			}
		}
		return ""
	}
	first := ""
	if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
		first = d.CmdArgs[0].Key
	}
	number := func(name string) uint64 {
		n, _ := strconv.ParseUint(arg(name), 10, 64)
		return n
	}
	c := Commit{Actor: admin, Message: strings.ReplaceAll(arg("message"), "_", " "), IdempotencyKey: arg("idem")}
	if as := arg("as"); as != "" {
		c.Actor = Actor{Name: as, Role: Role(as), Teams: strings.Fields(arg("teams"))}
	}
	if b := arg("base"); b != "" {
		n := number("base")
		c.Base = &n
	}
	ctx := context.Background()
	switch d.Cmd {
	case "commit":
		for line := range strings.Lines(d.Input) {
			c.Changes = append(c.Changes, s.change(t, strings.TrimSpace(line)))
		}
		r, err := s.h.Commit(ctx, c)
		return s.revision(r, err)
	case "rollback":
		r, err := s.h.Rollback(ctx, c, number("to"), RollbackOptions{Revive: arg("revive") != "", KeepKeys: arg("keep-keys") != ""})
		return s.revision(r, err)
	case "create-key":
		m, err := s.h.CreateKey(ctx, c, KeySpec{ID: first, Team: arg("team"), SHA256: s.hash(arg("hash"))})
		return s.made(m, err)
	case "rotate":
		overlap, _ := time.ParseDuration(arg("overlap"))
		m, err := s.h.RotateKey(ctx, c, first, arg("new"), overlap)
		return s.made(m, err)
	case "revoke":
		o, r, err := s.h.RevokeKey(ctx, c, first)
		if err != nil {
			return s.failed(err)
		}
		return s.plain(string(o.Body)) + "\n" + s.revision(r, nil)
	case "import":
		r, err := s.h.Import(ctx, c, Import{File: "p.yaml", YAML: []byte(s.hashed(d.Input)), Spoke: arg("spoke"), Replace: arg("replace") != "", Revive: arg("revive") != ""})
		return s.revision(r, err)
	case "report":
		return s.report(t, first, d.Input)
	case "wait":
		return s.wait(first)
	}
	return s.look(t, d.Cmd, first, arg, number, c.Actor)
}

func (s *scenario) report(t *testing.T, spoke, input string) string {
	var gpus []GPU
	for _, f := range strings.Fields(input) { // TYPE=FREE/CAPACITY
		var g GPU
		name, n, _ := strings.Cut(f, "=")
		if _, err := fmt.Sscanf(n, "%d/%d", &g.Free, &g.Capacity); err != nil {
			t.Fatal(err)
		}
		g.Type = name
		gpus = append(gpus, g)
	}
	if err := s.h.Report(context.Background(), spoke, SpokeReport{GPUs: gpus}); err != nil {
		return s.failed(err)
	}
	return "ok\n"
}

func (s *scenario) wait(text string) string {
	d, _ := time.ParseDuration(text)
	s.clock.add(d)
	return s.clock.now().Format(time.RFC3339) + "\n"
}

// look runs the commands that change nothing.
func (s *scenario) look(t *testing.T, cmd, first string, arg func(string) string, number func(string) uint64, who Actor) string {
	ctx, b := context.Background(), &strings.Builder{}
	switch cmd {
	case "show":
		o, err := s.h.Get(ctx, who, Kind(first), arg("name"))
		if err != nil {
			return s.failed(err)
		}
		return fmt.Sprintf("%d %s\n", o.Revision, s.plain(string(o.Body)))
	case "list":
		list, more, err := s.h.List(ctx, who, Kind(first), Page{After: arg("after"), Limit: int(number("limit")), Team: arg("team")})
		if err != nil {
			return s.failed(err)
		}
		for _, o := range list {
			fmt.Fprintf(b, "%s@%d ", o.Name, o.Revision)
		}
		return strings.TrimSpace(fmt.Sprint(b.String(), map[bool]string{true: "…"}[more])) + "\n"
	case "diff":
		d, err := s.h.Diff(ctx, who, number("from"), number("to"))
		if err != nil {
			return s.failed(err)
		}
		return s.plain(diffText(d))
	case "revisions":
		list, err := s.h.Revisions(ctx, who, number("before"), 0)
		if err != nil {
			return s.failed(err)
		}
		for _, r := range list {
			fmt.Fprintf(b, "%d %s %s %d changes %q\n", r.Number, r.Actor, r.At.Format(time.RFC3339), r.Changes, r.Message)
		}
	case "audit":
		list, err := s.h.Audit(ctx, who, AuditQuery{Kind: Kind(first), Name: arg("name")})
		if err != nil {
			return s.failed(err)
		}
		for _, a := range list {
			fmt.Fprintf(b, "%d %s %s %s %s revision %d\n  %s\n  %s\n", a.Number, a.Actor, a.Action, a.Kind, a.Name, a.Revision,
				s.plain(string(a.Before)), s.plain(string(a.After)))
		}
	case "works":
		return s.works(t)
	case "cut":
		cut := s.h.Cut(first)
		if cut == nil {
			return "none\n"
		}
		for r := range cut.All() {
			fmt.Fprintf(b, "%s %s\n", r.Kind, r.Name)
		}
	default:
		t.Fatalf("unknown command %s", cmd)
	}
	return b.String()
}

// works tells which of the keys a door would let in now.
func (s *scenario) works(t *testing.T) string {
	var b strings.Builder
	snap := s.h.Snapshot()
	for _, name := range slices.Sorted(maps.Keys(s.hashes)) {
		h, err := identity.ParseHash(s.hashes[name])
		if err != nil {
			t.Fatal(err)
		}
		what := "unknown"
		if k := snap.Key(h); k != nil {
			if what = k.Refused(s.clock.now()); what == "" {
				what = "works"
			}
		}
		fmt.Fprintf(&b, "%s %s\n", name, what)
	}
	return b.String()
}

func (s *scenario) change(t *testing.T, line string) Change {
	f := strings.SplitN(line, " ", 4)
	c := Change{Kind: Kind(f[1])}
	rest := ""
	if len(f) > 2 {
		c.Name = strings.Trim(f[2], `"`)
	}
	if len(f) > 3 {
		rest = f[3]
	}
	if before, n, ok := strings.Cut(rest, "if="); ok {
		rev, err := strconv.ParseUint(n, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		rest, c.IfRevision = strings.TrimSpace(before), &rev
	}
	if f[0] == "put" {
		c.Body = []byte(s.hashed(rest))
	}
	return c
}

// hashed puts hashes into the place of HASH(x).
func (s *scenario) hashed(text string) string {
	for strings.Contains(text, "HASH(") {
		before, after, _ := strings.Cut(text, "HASH(")
		name, after, _ := strings.Cut(after, ")")
		text = before + s.hash(name) + after
	}
	return text
}

// hash is the one that stands for a name.
func (s *scenario) hash(name string) string {
	if name == "" {
		return ""
	}
	if s.hashes[name] == "" {
		s.hashes[name] = fmt.Sprintf("%064x", 0xa0+len(s.hashes))
	}
	return s.hashes[name]
}

// plain puts names into the place of hashes.
func (s *scenario) plain(text string) string {
	for name, h := range s.hashes {
		text = strings.ReplaceAll(text, h, "HASH("+name+")")
	}
	return text
}

func (s *scenario) revision(r Revision, err error) string {
	if err != nil {
		return s.failed(err)
	}
	return fmt.Sprintf("revision %d\n", r.Number)
}

func (s *scenario) made(m KeyMade, err error) string {
	if err != nil {
		return s.failed(err)
	}
	secret := "no secret"
	if m.Secret != "" {
		h, ok := identity.ParseKey(m.Secret)
		secret = "a secret"
		if !ok || !strings.Contains(string(m.Object.Body), h.String()) {
			secret = "a secret that does not fit"
		}
		s.hashes[m.Object.Name] = h.String()
	}
	out := fmt.Sprintf("%s, %s, revision %d\n", s.plain(string(m.Object.Body)), secret, m.Revision.Number)
	if m.Old != nil {
		out += "old " + s.plain(string(m.Old.Body)) + "\n"
	}
	return out
}

func (s *scenario) failed(err error) string {
	var conflict *Conflict
	var bad *Invalid
	var forbidden *Forbidden
	kind := "error"
	switch {
	case errors.As(err, &conflict):
		kind = "conflict"
	case errors.As(err, &bad):
		kind = "invalid"
	case errors.As(err, &forbidden):
		kind = "forbidden"
	case errors.Is(err, ErrNotFound):
		kind = "not found"
	}
	return kind + ": " + s.plain(err.Error()) + "\n"
}
