// Package doctor looks at a deployment from outside, as its operator does, and says what is wrong and how to mend it.
//
// It promises that it changes nothing and sends no client's traffic unless a key is given for one request, that each look has
// a time limit of its own, that what cannot be reached is a finding and not an end, and that no secret is in what it says. It
// promises no more than what can be seen from where it runs: what it could not look at, it names.
package doctor

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spokegate/spokegate/usage"
)

// Target says what to look at, and from what it may be discovered. Fields at zero are left out, or take the default beside them.
type Target struct {
	// Dirs are folders of roles on this machine: their files are looked at, and their processes found.
	Dirs []string
	// Ops are addresses of pages of doors, pickers, workers and hubs: host:port, or unix:PATH. Each says what it is.
	Ops []string
	// Admin are Envoys' admin pages, of gateways other than our doors' too: host:port, or unix:PATH.
	Admin []string
	// Engines are URLs of engines that must not be reachable from here.
	Engines []string
	// Redis takes the place of what doors say of theirs, where that has a password.
	Redis        string
	RedisTimeout time.Duration
	Kafka        []string
	Security     usage.KafkaSecurity
	// BodyLimit is the largest request body in bytes that gateways without a door of ours are to let through. Default 32 MiB.
	BodyLimit int64
	// Key makes one real request through each door, for Model (default: the first that the key may use).
	Key, Model string
	// Kube is the namespace to look at in Kubernetes; KubeConfig the file that says where, empty: as in a pod, or as kubectl has it.
	Kube, KubeConfig string
	// Patience is how long one check may take. Default 10 s.
	Patience time.Duration
	// Version is that of who asks.
	Version string
}

// exam is one visit: what was asked for, what was discovered, what was found.
type exam struct {
	Target
	processes []*process
	gateways  []*gateway
	left      map[string]string // by an address the file that it was left in

	mu       sync.Mutex
	findings []Finding
	over     bool // the report is made

	late time.Duration // grace, but for tests
}

// check looks at one thing of a deployment.
type check struct {
	name string
	run  func(ctx context.Context, e *exam)
}

// checks are all of them, in no order that matters.
var checks = []check{
	{"ports", checkPorts}, {"ready", checkReady}, {"side doors", checkSideDoors}, {"certificates", checkCertificates},
	{"clocks", checkClocks}, {"gateways", checkGateways}, {"counters of gateways", checkStats}, {"fleet", checkFleets},
	{"shims", checkShims}, {"engines", checkEngines}, {"redis", checkRedis}, {"kafka", checkKafka}, {"policy", checkPolicies},
	{"files", checkFiles}, {"counters", checkCounters}, {"versions", checkVersions}, {"request", checkRequest}, {"kubernetes", checkKube},
}

// Examine discovers what t leaves open, and makes all checks.
func Examine(ctx context.Context, t Target) Report {
	t.Patience = cmp.Or(t.Patience, 10*time.Second)
	t.BodyLimit = cmp.Or(t.BodyLimit, 32<<20)
	e := &exam{Target: t, left: map[string]string{}}
	e.discover(ctx)
	var all errgroup.Group
	all.SetLimit(8)
	for _, c := range checks {
		all.Go(func() error {
			e.timed(ctx, c)
			return nil
		})
	}
	_ = all.Wait()
	return e.report()
}

// timed makes one check within its time.
func (e *exam) timed(ctx context.Context, c check) {
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx, e)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done: // it has said what it saw until now
		case <-time.After(e.grace()): // it hangs where no time limit holds, as in a file of a disk that is away
		}
	}
	if ctx.Err() != nil {
		e.found("check-cut", c.name, "not done within %v", e.Patience)
	}
}

// grace is how long a check may take to notice that its time is over.
func (e *exam) grace() time.Duration { return cmp.Or(e.late, 5*time.Second) }

// found adds what is wrong by the kind's own severity.
func (e *exam) found(id, where, format string, args ...any) { e.say(id, where, true, format, args...) }

// say adds a finding of the kind where bad, else that all is well in this respect.
func (e *exam) say(id, where string, bad bool, format string, args ...any) {
	f := newFinding(id, where, bad, format, args...)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		e.findings = append(e.findings, f)
	}
}

func (e *exam) report() Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	slices.SortStableFunc(e.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(order(a.Area), order(b.Area)), -cmp.Compare(a.Severity.rank(), b.Severity.rank()),
			cmp.Compare(a.ID, b.ID), cmp.Compare(a.Where, b.Where))
	})
	r := Report{At: time.Now().UTC(), Version: e.Version, Findings: slices.Compact(e.findings)}
	for _, f := range r.Findings {
		r.Verdict = worse(r.Verdict, f.Severity)
	}
	return r
}
