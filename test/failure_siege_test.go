package test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// siege is an installation whose parts are broken one after the other, under load.
type siege struct {
	ups    []*up    // the doors
	spools []string // folders of all journals
	seed   uint64
	lost   bool // a door was killed, and took records along
}

// fault is one row of the design's table of failures.
type fault struct {
	name string
	// breaks injects the fault and returns when all is well again.
	breaks func(t *testing.T, s *siege)
	// may is what clients may suffer meanwhile, beside nothing.
	may []verdict
	// What a process takes along that is killed: records of usage with the door, of what was served with the shim.
	losesUsage, losesServed bool
}

// besiege starts an installation for some rows. early runs once its process is started, before its Envoy is: it makes the gate
// that Envoy waits for. env is added to its environment.
func besiege(t *testing.T, name string, change func(*upOptions), early func(*up) error, env ...string) *siege {
	t.Helper()
	lab.needEnvoy(t)
	o := upOptions{policy: siegePolicy(), rates: ratesFile(t)}
	if change != nil {
		change(&o)
	}
	u, err := newUp(name, o)
	if err != nil {
		t.Fatal(err)
	}
	u.cmd.Env = append(u.cmd.Env, env...)
	if early != nil {
		if err := afterTheGate(u); err != nil {
			t.Fatal(err)
		}
	}
	if err := start(u, early); err != nil {
		t.Fatalf("%v\n%s%v", err, u.report(), u.kill())
	}
	u.ledger = newLedger(filepath.Join(u.dir, "spool"))
	t.Cleanup(func() {
		if err := u.stop(); err != nil {
			t.Error(err)
		}
	})
	u.knows(t, "sim", 3)
	return &siege{ups: []*up{u}, spools: []string{filepath.Join(u.dir, "spool")}}
}

func start(u *up, early func(*up) error) error {
	if err := u.begin(); err != nil {
		return err
	}
	if early != nil {
		if err := early(u); err != nil {
			return err
		}
	}
	return u.awaitReady()
}

func siegePolicy() *policyText {
	p := simPolicy()
	p.setHead("platform: {tokens: {output_most: 100}}\n" + p.head)
	p.set(loadKey, fmt.Sprintf("team: t1, limits: [{concurrency: %d, tokens_per_minute: 10000000, tokens_per_day: 1000000000}]", loadPlaces))
	p.set("leaver", "team: t1")
	p.set("shared", "team: t1, limits: [{concurrency: 6}]")
	p.set("paced", "team: t1, limits: [{"+seldom+", burst: 6}]")
	p.set("ten", fmt.Sprintf("team: t1, limits: [{requests_per_day: %d}]", tenRequests))
	p.set("budget", fmt.Sprintf("team: t1, limits: [{tokens_per_day: %d}]", budgetTokens))
	return p
}

// suffers runs one row: load, the fault, load again; then everything must add up and be free.
func (s *siege) suffers(t *testing.T, f fault) {
	t.Run(f.name, func(t *testing.T) {
		s.seed++
		began := time.Now()
		l := startLoad(s.ups, s.seed)
		defer l.stop()
		l.whole(t, 20)
		w := window{from: time.Now()}
		s.lost = s.lost || f.losesUsage
		f.breaks(t, s)
		w.to = time.Now()
		l.whole(t, 20)
		shots := l.stop()
		judgeShots(t, shots, w, f.may)
		s.free(t)
		s.balance(t, shots, f)
		if len(f.may) == 0 {
			s.unharmed(t, began, shots)
		}
		s.fillAll(t)
	})
}

// free waits until no door holds anything, and every journal has what it will ever have.
func (s *siege) free(t testing.TB) {
	t.Helper()
	for _, u := range s.ups {
		u.idle(t, journalPatience)
		if !s.lost {
			u.ledger.settles(t)
		}
	}
}

// unharmed wants of all that was admitted since that it is complete, or that its client left: some of them before they were
// sent to a worker.
func (s *siege) unharmed(t *testing.T, since time.Time, shots []shot) {
	t.Helper()
	undispatched := 0
	for _, x := range shots {
		if x.verdict == leftIt {
			undispatched--
		}
	}
	for id, e := range s.entries(t) {
		for _, r := range e.usage {
			switch {
			case !r.GetAdmittedAt().AsTime().After(since), r.GetOutcome() == usage.OutcomeComplete, r.GetOutcome() == usage.OutcomeClientCut:
			case r.GetKey() == loadKey && r.GetOutcome() == usage.OutcomeNotServed && len(e.served) == 0 && undispatched < 0:
				undispatched++
			default:
				t.Errorf("nobody was harmed, and %s is journaled as %s, served %v", id, usage.AppendJSON(nil, r), e.served)
			}
		}
	}
}

func (s *siege) entries(t testing.TB) map[string]*entry {
	t.Helper()
	all := map[string]*entry{}
	for _, dir := range s.spools {
		if _, err := usage.Read(dir, func(r *usagev1.Record) error { note(all, r); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// balance waits until the journals add up: a shim may write its record a moment after the door wrote its own.
func (s *siege) balance(t *testing.T, shots []shot, f fault) {
	t.Helper()
	var asked map[string][]account
	if f.losesUsage {
		asked = s.ups[0].accounts(t)
	}
	eventually(t, journalPatience, func() error {
		entries := s.entries(t)
		if err := balanced(entries, !s.lost); err != nil {
			return err
		}
		for id, e := range entries {
			if err := addsUp(e, f, len(asked[id])); err != nil {
				return fmt.Errorf("admission %s: %w", id, err)
			}
		}
		for _, x := range shots {
			if err := x.agrees(entries[x.admission], f); err != nil {
				return fmt.Errorf("%s at the client, admission %q: %w", x.verdict, x.admission, err)
			}
		}
		return nil
	})
	outcomes := map[string]int{}
	for _, e := range s.entries(t) {
		for _, r := range e.usage {
			outcomes[r.GetOutcome()]++
		}
	}
	t.Logf("so far %v", outcomes)
}

// addsUp wants door ≤ served, equality where it is complete, and of an admission whose usage was lost a served record,
// unless no engine was ever asked.
func addsUp(e *entry, f fault, asked int) error {
	var served *usagev1.Record
	for _, r := range e.served {
		if served == nil || r.GetCompletionTokens() >= served.GetCompletionTokens() {
			served = r
		}
	}
	if len(e.usage) == 0 {
		if served == nil && asked > 0 {
			return fmt.Errorf("neither used nor served, and %d engines were asked", asked)
		}
		return nil // balanced knows whether that may be
	}
	door := e.usage[0]
	if served == nil {
		if door.GetCompletionTokens() > 0 && !f.losesServed {
			return fmt.Errorf("no served record for %s", usage.AppendJSON(nil, door))
		}
		return nil
	}
	same := door.GetCompletionTokens() == served.GetCompletionTokens() && door.GetPromptTokens() == served.GetPromptTokens()
	whole := door.GetOutcome() == usage.OutcomeComplete && len(door.GetAnomalies()) == 0
	if door.GetCompletionTokens() > served.GetCompletionTokens() || whole && !same && !f.losesServed {
		return fmt.Errorf("the door says %s, the shim %s", usage.AppendJSON(nil, door), usage.AppendJSON(nil, served))
	}
	return nil
}

// agrees compares what a client got with what is journaled.
func (x shot) agrees(e *entry, f fault) error {
	if x.verdict != whole200 {
		return nil
	}
	if e == nil {
		return fmt.Errorf("it is in no journal")
	}
	for _, r := range e.usage {
		if len(r.GetAnomalies()) == 0 && (r.GetOutcome() != usage.OutcomeComplete || r.GetCompletionTokens() != x.tokens || r.GetStatus() != 200) {
			return fmt.Errorf("want %d tokens, got %s", x.tokens, usage.AppendJSON(nil, r))
		}
	}
	if !f.losesServed && !slices.ContainsFunc(e.served, func(r *usagev1.Record) bool { return r.GetCompletionTokens() == x.tokens }) {
		return fmt.Errorf("want %d tokens served, got %v", x.tokens, e.served)
	}
	return nil
}

// anomalies counts what the journals say of them.
func (s *siege) anomalies(t testing.TB) map[string]int {
	t.Helper()
	n := map[string]int{}
	for e := range maps.Values(s.entries(t)) {
		for _, r := range e.usage {
			for _, a := range r.GetAnomalies() {
				n[a]++
			}
		}
	}
	return n
}
