package push

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/push/pushtest"
)

// TestDoorThatCallsAgain takes the place of its former stream.
func TestDoorThatCallsAgain(t *testing.T) {
	r := newRig(t, nil)
	r.teams("a")
	old := r.dial("s/d").follow(policy.KindTeam)
	old.gets("1: Team a")
	next := r.dial("s/d").follow(policy.KindTeam)
	next.gets("1: Team a")
	if _, err := old.stream.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("got %v", err)
	}
	if h := r.until("s/d", "current"); !h.Connected {
		t.Errorf("%+v", h)
	}
}

// TestReplicasAreHolders of their own.
func TestReplicasAreHolders(t *testing.T) {
	r := newRig(t, nil)
	r.teams("a")
	one, two := r.dial("s/one").follow(policy.KindTeam), r.dial("s/two").follow(policy.KindTeam)
	one.gets("1: Team a")
	_, end := two.whole()
	two.nack(end, "not here")
	if h := r.until("s/one", "current"); h.Revision != 1 {
		t.Errorf("%+v", h)
	}
	if h := r.until("s/two", "refused"); h.Revision != 0 || h.Nack != "not here" {
		t.Errorf("%+v", h)
	}
	text := `# HELP spokegate_push_doors Doors known since the hub started, by how they stand: current, behind (a revision is on its way), refused (the latest was), ahead (it was, because the door holds a later one), away.
# TYPE spokegate_push_doors gauge
spokegate_push_doors{state="ahead"} 0
spokegate_push_doors{state="away"} 0
spokegate_push_doors{state="behind"} 0
spokegate_push_doors{state="current"} 1
spokegate_push_doors{state="refused"} 1
`
	if err := testutil.CollectAndCompare(doors{r.server}, strings.NewReader(text)); err != nil {
		t.Error(err)
	}
}

// TestEachSpokeGetsItsOwn: endpoints of its own only.
func TestEachSpokeGetsItsOwn(t *testing.T) {
	r := newRig(t, nil)
	all := policy.NewCut(&policyv1.Set{}).Next(&policyv1.Revision{Number: 1}, []policy.Resource{pushtest.Team("a", 1)}, nil)
	of := map[string]*policy.Cut{}
	for _, spoke := range []string{"north", "south"} {
		of[spoke] = all.Next(all.Revision(), []policy.Resource{policy.Encode(policy.KindEndpoint, spoke, &policyv1.Endpoint{Name: spoke})}, nil)
	}
	r.Publish(all, of)
	r.dial("north/d").follow(policy.Kinds...).gets("1: Endpoint north, Team a")
	r.dial("south/d").follow(policy.Kinds...).gets("1: Endpoint south, Team a")
	r.dial("else/d").follow(policy.Kinds...).gets("1: Team a")
	if n := len(r.server.plans.made[policy.KindTeam]); n != 1 {
		t.Errorf("the same bytes were made %d times", n)
	}
}

func TestWhoIsLetIn(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Token, c.Streams = "another", 1 })
	r.teams("a")
	if _, err := r.dial("s/d").stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("another token: %v", err)
	}
	r.server.cfg.Token = token
	for _, node := range []string{"", "s", "/d", "s/", "s/d/e", "s/ü", strings.Repeat("s", 65) + "/d"} {
		c := r.dial(node)
		c.follow()
		if _, err := c.stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("node %q: %v", node, err)
		}
		r.free()
	}
	r.dial("s/d").follow(policy.KindTeam).gets("1: Team a")
	if _, err := r.dial("s/e").stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	if n := testutil.ToFloat64(r.server.metrics.refused.WithLabelValues("identity")); n != 8 {
		t.Errorf("%v refused for their identity", n)
	}
	if n := testutil.ToFloat64(r.server.metrics.refused.WithLabelValues("full")); n != 1 {
		t.Errorf("%v refused for want of room", n)
	}
}

// free waits until no stream is open.
func (r *rig) free() {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		r.server.gate.Lock()
		n := r.server.pushes
		r.server.gate.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatal("a stream stays open")
		}
	}
}

// TestSumsOfUsage: each store hears what all others have counted, once, and what is over is forgotten.
func TestSumsOfUsage(t *testing.T) {
	u := newUsed("hub")
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	day := now.Truncate(24 * time.Hour).Unix()
	total := func(limit string, used int64) *hubv1.Total {
		return &hubv1.Total{Limit: limit, Kind: hubv1.Kind_KIND_TOKENS_PER_DAY, Start: day, Used: used}
	}
	told := map[string]uint64{}
	hears := func(store string, most int, want ...int64) {
		t.Helper()
		totals, upTo := u.elsewhere(store, told[store], most)
		told[store] = upTo
		var got []int64
		for _, x := range totals {
			got = append(got, x.Used)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: want (-), got (+): %s", store, d)
		}
	}
	take := func(store string, ts ...*hubv1.Total) {
		t.Helper()
		if err := u.take(store, ts, now); err != nil {
			t.Fatal(err)
		}
	}
	take("a", total("x", 5), total("y", 7), total("z", 0))
	hears("a", 10)       // its own
	hears("b", 10, 5, 7) // in the order of their changes
	hears("b", 10)
	take("b", total("x", 100))
	hears("a", 10, 100)
	hears("b", 10)
	hears("c", 1, 7) // the oldest change first, and the rest with the next message
	hears("c", 1, 105)
	hears("c", 1)
	take("a", total("x", 6))
	take("a", total("x", 6)) // again: nothing
	hears("a", 10)
	hears("b", 10, 6)
	take("a", total("x", 4)) // settled
	hears("c", 10, 104)
	take("a", total("x", -1), &hubv1.Total{Limit: "x", Start: day, Used: 3}, &hubv1.Total{Limit: "x", Kind: hubv1.Kind_KIND_TOKENS_PER_DAY, Start: day - 2*24*60*60, Used: 3})
	hears("c", 10) // nonsense, and of the past
	now = now.Add(48 * time.Hour)
	take("a")
	if len(u.byKey) != 0 || u.recent.Len() != 0 {
		t.Errorf("%d sums are kept of a day that is over", len(u.byKey))
	}
}
