package follow

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
	"github.com/spokegate/spokegate/xds/push/pushtest"
)

// TestWhatCannotBeKeptIsFetchedAgain: the fault is not the revision's, so it is not left at the refusal.
func TestWhatCannotBeKeptIsFetchedAgain(t *testing.T) {
	h := newHub(t, nil)
	h.Next(pushtest.Base())
	d := newDoor(t, h, "d", nil)
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.has(1)
	block := filepath.Join(d.dir, "policy-00000000000000000002.pb")
	if err := os.MkdirAll(filepath.Join(block, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.Next([]policy.Resource{pushtest.Team("a", 1)})
	await(t, "refused, and the hub knows", func() bool {
		x, _ := h.holder("d")
		return strings.Contains(x.Nack, "keep policy") && d.agent.Status().LastNack != ""
	})
	if st := d.agent.Status(); st.Revision != 2 {
		t.Errorf("revision %d is in force: what 2 revokes goes on working because the disk is full", st.Revision)
	}
	if err := os.RemoveAll(block); err != nil {
		t.Fatal(err)
	}
	d.has(2)
	if x, _ := h.holder("d"); x.Nack != "" || d.agent.Status().LastNack != "" {
		t.Errorf("%+v", x)
	}
}

// TestDoorWaitsForItsFirstPolicy: without anything on disk there is nothing to serve until the hub is there.
func TestDoorWaitsForItsFirstPolicy(t *testing.T) {
	h := newHub(t, nil)
	h.Next(pushtest.Base())
	h.stop()
	d := newDoor(t, h, "d", nil)
	started := make(chan error)
	go func() { started <- d.start() }()
	select {
	case err := <-started:
		t.Fatal("it has started without a policy: ", err)
	case <-time.After(300 * time.Millisecond): // long enough to have tried a few times
	}
	h.start()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	d.has(1)
}

// TestHowOldThePolicyIs is known over a restart with the hub away.
func TestHowOldThePolicyIs(t *testing.T) {
	h := newHub(t, nil)
	h.Next(pushtest.Base())
	d := newDoor(t, h, "d", nil)
	before := time.Now().Add(-2 * time.Second) // the mark has no fractions
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.has(1)
	d.stop()
	h.stop()
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	if st := d.source.Status(); st.Connected || st.Heard.Before(before) || st.Heard.After(time.Now()) {
		t.Errorf("%+v", st)
	}
	d.stop()
	if err := os.WriteFile(filepath.Join(d.dir, "heard"), []byte("2999-01-01T00:00:00Z\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	if st := d.source.Status(); !st.Heard.IsZero() {
		t.Errorf("a time to come is believed: %+v", st)
	}
}

// TestReports: the hub hears of the door, and each store of what the others have counted.
func TestReports(t *testing.T) {
	h := newHub(t, nil)
	h.Next(pushtest.Base())
	day := time.Now().UTC().Truncate(24 * time.Hour).Unix()
	total := func(used int64) *hubv1.Total {
		return &hubv1.Total{Limit: "team/1:t/0:", Kind: hubv1.Kind_KIND_TOKENS_PER_DAY, Start: day, Used: used}
	}
	var mu sync.Mutex
	own, heard := map[string]int64{"a": 10, "b": 200}, map[string]int64{}
	reports := func(name, store string) func(*Config) {
		return func(c *Config) {
			c.Reports = Reports{Store: store, Every: time.Millisecond,
				State: func() *hubv1.Report { return &hubv1.Report{Version: "v1", Revoked: []*hubv1.Revocation{{Key: "bob"}}} },
				Used: func(context.Context) ([]*hubv1.Total, error) {
					mu.Lock()
					defer mu.Unlock()
					return []*hubv1.Total{total(own[name])}, nil
				},
				Elsewhere: func(_ string, ts []*hubv1.Total) {
					mu.Lock()
					defer mu.Unlock()
					heard[name] = ts[len(ts)-1].Used
				}}
		}
	}
	for _, x := range []struct{ name, store string }{{"a", "redis"}, {"a2", "redis"}, {"b", "b"}} {
		mu.Lock()
		own[x.name] = max(own[x.name], own[x.name[:1]])
		mu.Unlock()
		d := newDoor(t, h, x.name, reports(x.name, x.store))
		if err := d.start(); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(a, a2, b int64) {
		t.Helper()
		await(t, "all have heard", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return heard["a"] == a && heard["a2"] == a2 && heard["b"] == b
		})
	}
	hears(200, 200, 10)
	mu.Lock()
	own["a"], own["a2"], own["b"] = 25, 25, 201
	mu.Unlock()
	hears(201, 201, 25)
	x, _ := h.holder("a2")
	if x.Report.GetVersion() != "v1" || len(x.Report.GetRevoked()) != 1 || x.ReportedAt.IsZero() {
		t.Errorf("%+v", x)
	}
	h.stop()
	h.start() // knows nothing, and is told
	mu.Lock()
	own["b"] = 300
	mu.Unlock()
	hears(300, 300, 25)
}

// TestWhatIsNotWholeIsRefused, each with its reason.
func TestWhatIsNotWholeIsRefused(t *testing.T) {
	team := pushtest.Team("a", 1)
	response := func(change func(*discoveryv3.DeltaDiscoveryResponse)) *discoveryv3.DeltaDiscoveryResponse {
		r := &discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: "1", TypeUrl: delta.TypeURL(policy.KindTeam), Resources: []*discoveryv3.Resource{
			{Name: "a", Version: team.Version, Resource: &anypb.Any{TypeUrl: delta.TypeURL(policy.KindTeam), Value: team.Body}}}}
		change(r)
		return r
	}
	for want, change := range map[string]func(*discoveryv3.DeltaDiscoveryResponse){
		"":                          func(*discoveryv3.DeltaDiscoveryResponse) {},
		"was changed on the way":    func(r *discoveryv3.DeltaDiscoveryResponse) { r.Resources[0].Resource.Value = []byte("x") },
		"is of another type":        func(r *discoveryv3.DeltaDiscoveryResponse) { r.Resources[0].Resource.TypeUrl = "x" },
		"a type that was not asked": func(r *discoveryv3.DeltaDiscoveryResponse) { r.TypeUrl = "x" },
		"Team \"b\" was changed on": func(r *discoveryv3.DeltaDiscoveryResponse) { r.Resources[0].Name, r.Resources[0].Version = "b", "00" },
		"is of another type: \"\"":  func(r *discoveryv3.DeltaDiscoveryResponse) { r.Resources[0].Resource = nil },
	} {
		err := newStage(nil).add(read(t, response(change)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", want, err)
		}
	}
	s := newStage(nil)
	if err := s.add(read(t, response(func(*discoveryv3.DeltaDiscoveryResponse) {}))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.close(&incoming{}); err == nil || !strings.Contains(err.Error(), "0 revisions") {
		t.Errorf("%v", err)
	}
	if _, _, err := s.close(&incoming{resources: []arrived{{body: []byte{0xff}}}}); err == nil {
		t.Error("nonsense is a revision")
	}
	// What was given up is not mixed with what comes after it.
	second := response(func(r *discoveryv3.DeltaDiscoveryResponse) { r.SystemVersionInfo, r.Resources[0].Name = "2", "z" })
	if err := s.add(read(t, second)); err != nil {
		t.Fatal(err)
	}
	if len(s.changed) != 1 || s.changed[0][0].Name != "z" {
		t.Errorf("%v", s.changed)
	}
	// A long response is checked beside, and refused at the end.
	long := policy.Encode(policy.KindTeam, "a", &policyv1.Team{Name: "a", Models: []string{strings.Repeat("m", longResponse)}})
	for version, good := range map[string]bool{long.Version: true, team.Version: false} {
		s := newStage(nil)
		if err := s.add(read(t, response(func(r *discoveryv3.DeltaDiscoveryResponse) {
			r.Resources[0].Version, r.Resources[0].Resource.Value = version, long.Body
		}))); err != nil {
			t.Fatal(err)
		}
		cut, _, err := s.close(&incoming{revision: "1", resources: []arrived{{}}})
		if good && (err != nil || cut.Len() != 1) || !good && (err == nil || !strings.Contains(err.Error(), "was changed on the way")) {
			t.Errorf("a long one, good: %v: %v", good, err)
		}
	}
}

// FuzzStage: whatever a hub sends is read as protobuf reads it, and a stage takes no resource under a version that is not its own.
func FuzzStage(f *testing.F) {
	for _, p := range func() [][]byte {
		pages, _ := delta.Pages(policy.KindTeam, 3, []policy.Resource{pushtest.Team("a", 1)}, []policy.Ref{{Kind: policy.KindTeam, Name: "b"}})
		end, _ := delta.Closing(policy.NewCut(nil))
		return [][]byte{pages[0].Message("1").Materialize(), end.Message("2").Materialize()}
	}() {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in, r := &incoming{}, &discoveryv3.DeltaDiscoveryResponse{}
		if in.read(data) != nil || proto.Unmarshal(data, r) != nil {
			return
		}
		var want incoming
		want.revision, want.typeURL, want.nonce, want.removed = r.SystemVersionInfo, r.TypeUrl, r.Nonce, r.RemovedResources
		for _, x := range r.Resources {
			want.resources = append(want.resources, arrived{x.Name, x.Version, x.GetResource().GetTypeUrl(), x.GetResource().GetValue()})
		}
		if d := cmp.Diff(&want, in, cmp.AllowUnexported(incoming{}, arrived{}), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("protobuf (-) reads it otherwise (+): %s", d)
		}
		s := newStage(nil)
		if s.add(in) == nil {
			for i, x := range slices.Concat(s.changed...) {
				if x.Version != policy.NewResource(x.Kind, x.Name, x.Body).Version || x.Name != r.Resources[i].Name {
					t.Errorf("took %v", x.Ref)
				}
			}
		}
		_, _, _ = s.close(in)
	})
}

// read is a response as it comes from the wire.
func read(t *testing.T, r *discoveryv3.DeltaDiscoveryResponse) *incoming {
	t.Helper()
	data, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	in := &incoming{}
	if err := in.read(data); err != nil {
		t.Fatal(err)
	}
	return in
}
