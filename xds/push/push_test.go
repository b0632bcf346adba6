package push

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
	"github.com/spokegate/spokegate/xds/push/pushtest"
)

// TestPagesAreResponses holds the bytes that are put together by hand against the message.
func TestPagesAreResponses(t *testing.T) {
	long := policy.Encode(policy.KindTeam, "long", &policyv1.Team{Name: "long", Models: []string{strings.Repeat("m", 3000)}})
	changed := []policy.Resource{pushtest.Team("a", 1), long, pushtest.Team("", 2)}
	pages, err := delta.Pages(policy.KindTeam, 7, changed, gone("b", ""))
	if err != nil || len(pages) != 1 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	got, want := &discoveryv3.DeltaDiscoveryResponse{}, &discoveryv3.DeltaDiscoveryResponse{
		SystemVersionInfo: "7", TypeUrl: delta.TypeURL(policy.KindTeam), Nonce: "n", RemovedResources: []string{"b", ""},
	}
	for _, r := range changed {
		want.Resources = append(want.Resources, &discoveryv3.Resource{Name: r.Name, Version: r.Version, Resource: &anypb.Any{TypeUrl: want.TypeUrl, Value: r.Body}})
	}
	if err := proto.Unmarshal(pages[0].Message("n").Materialize(), got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
}

// TestNoMessageIsTooLong: a policy of any length travels in messages that gRPC takes.
func TestNoMessageIsTooLong(t *testing.T) {
	r := newRig(t, nil)
	var big []policy.Resource
	for i := range 40 {
		big = append(big, policy.Encode(policy.KindTeam, fmt.Sprint("t", i), &policyv1.Team{Models: []string{strings.Repeat("m", 100_000*(i%4))}}))
	}
	removed := make([]string, 12_000)
	for i := range removed {
		removed[i] = fmt.Sprintf("%0200d", i)
		big = append(big, pushtest.Team(removed[i], 1))
	}
	r.Next(big)
	c := r.dial("s/d", grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(delta.PageBytes+400_000))).follow(policy.KindTeam)
	text, end := c.whole()
	if n := len(strings.Fields(text)); n != 1+40+12_000+strings.Count(text, "Team") {
		t.Errorf("%d words came", n)
	}
	c.ack(end)
	r.Next(nil, gone(removed...)...)
	if text, _ = c.whole(); strings.Count(text, " -0") != len(removed) || strings.Count(text, "Team") < 3 {
		t.Errorf("%d removals came in %d messages", strings.Count(text, " -0"), strings.Count(text, "Team"))
	}
}

// TestResourceThatNobodyCouldReceive is not sent, and the hub says so.
func TestResourceThatNobodyCouldReceive(t *testing.T) {
	r := newRig(t, nil)
	r.teams("a")
	c := r.dial("s/d").follow(policy.KindTeam)
	c.gets("1: Team a")
	r.Next([]policy.Resource{policy.NewResource(policy.KindTeam, "huge", make([]byte, delta.MostBytes))})
	if h := r.until("s/d", "refused"); h.Nack != "the hub cannot send it: Team huge has 4194304 bytes: more than a message may have" {
		t.Errorf("%+v", h)
	}
	r.Next([]policy.Resource{pushtest.Team("huge", 1)})
	c.gets("3: Team huge")
}

// TestRefusedIsNotSentAgain until something changes: not on the stream, and not to the same door when it calls again.
func TestRefusedIsNotSentAgain(t *testing.T) {
	r := newRig(t, nil)
	r.teams("a")
	c := r.dial("s/d").instance("1").follow(policy.KindTeam)
	_, end := c.whole()
	c.nack(end, "no")
	r.until("s/d", "refused")
	c.subscribe(policy.KindTeam, nil)
	c.close()
	r.until("s/d", "away")
	c = r.dial("s/d").instance("1").follow(policy.KindTeam)
	r.until("s/d", "refused")
	r.teams("b")
	c.gets("2: Team a b")
	r.teams("c")
	_, end = c.whole()
	c.nack(end, "no")
	r.until("s/d", "refused")
	c.close()
	c = r.dial("s/d").instance("2") // a new start may see it otherwise
	c.follow(policy.KindTeam)
	c.gets("3: Team a b c")
	if n := testutil.ToFloat64(r.server.metrics.nacks); n != 2 {
		t.Errorf("%v nacks", n)
	}
}

// TestOneRevisionAtATime: the next goes when this one is answered, and a stale or foreign nonce answers nothing.
func TestOneRevisionAtATime(t *testing.T) {
	r := newRig(t, nil)
	r.teams("a")
	c := r.dial("s/d").follow(policy.KindTeam)
	page := c.recv()
	for _, nonce := range []string{"0", "99", "-1", "x", ""} {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: page.TypeUrl, ResponseNonce: nonce})
	}
	end := c.recv()
	r.teams("b")
	c.ack(page)
	c.ack(page)
	if h := r.until("s/d", "behind"); h.InFlight != 1 || h.Revision != 0 {
		t.Errorf("%+v", h)
	}
	c.ack(end)
	c.gets("2: Team b")
	c.ack(end) // stale
	c.nack(end, "stale")
	r.teams("c")
	c.gets("3: Team c")
	if h := r.until("s/d", "current"); h.Revision != 3 || h.Nack != "" {
		t.Errorf("%+v", h)
	}
}

// TestPartRefused: a NACK of any response refuses the revision as a whole.
func TestPartRefused(t *testing.T) {
	r := newRig(t, nil)
	r.Next(append(pushtest.Base(), pushtest.Team("a", 1)))
	c := r.dial("s/d").follow(policy.KindTeam, policy.KindModel)
	c.nack(c.recv(), "no such model")
	if h := r.until("s/d", "refused"); h.Nack != "no such model" || h.Revision != 0 {
		t.Errorf("%+v", h)
	}
	r.teams("b")
	for m := c.recv(); ; m = c.recv() { // what was on its way may come still
		if m.SystemVersionInfo == "2" {
			if m.TypeUrl != delta.TypeURL(policy.KindModel) || m.Resources[0].Name != "m" {
				t.Errorf("the whole is to be sent again, not %v", m)
			}
			break
		}
	}
}

// TestResume: nothing that a door has is sent to it again, whoever restarted.
func TestResume(t *testing.T) {
	first := newRig(t, nil)
	cut := first.Next(append(pushtest.Base(), pushtest.Team("a", 1), pushtest.Team("b", 1), pushtest.Team("c", 1)))
	says := func(c *raw, cut *policy.Cut) {
		for _, kind := range policy.Kinds {
			has := map[string]string{}
			for r := range cut.Of(kind) {
				has[r.Name] = r.Version
			}
			c.subscribe(kind, has)
		}
		c.subscribe(delta.KindRevision, map[string]string{delta.RevisionName: delta.Version(cut)})
	}
	hub := newRig(t, nil) // another start of the hub
	hub.Publish(cut, nil)
	c := hub.dial("s/d")
	says(c, cut)
	c.gets("1: ") // the end alone, so that the hub knows
	if h := hub.until("s/d", "current"); h.Revision != 1 || h.Digest != fmt.Sprintf("%x", cut.Digest()) {
		t.Errorf("%+v", h)
	}
	c.close()
	hub.Next([]policy.Resource{pushtest.Team("a", 2), pushtest.Team("d", 1)}, gone("b")...)
	c = hub.dial("s/d")
	says(c, cut)
	c.gets("2: Team a d -b")
}

// TestSlowReaderHindersNobody.
func TestSlowReaderHindersNobody(t *testing.T) {
	r := newRig(t, nil)
	var big []policy.Resource
	for i := range 16 {
		big = append(big, policy.Encode(policy.KindTeam, fmt.Sprint("t", i), &policyv1.Team{Models: []string{strings.Repeat("m", 1<<20)}}))
	}
	r.Next(big)
	r.dial("slow/d", grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10)).follow(policy.KindTeam)
	r.until("slow/d", "behind")
	quick := r.dial("quick/d").follow(policy.KindTeam)
	_, end := quick.whole()
	quick.ack(end)
	r.until("quick/d", "current")
	r.until("slow/d", "behind")
}

// TestDoorThatDoesNotAnswer is let go in the end.
func TestDoorThatDoesNotAnswer(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Stall = 10 * time.Millisecond })
	r.teams("a")
	silent := r.dial("silent/d")
	silent.subscribe(delta.KindRevision, nil)
	for {
		if _, err := silent.stream.Recv(); err != nil {
			if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "revision 1 was not answered within 10ms") {
				t.Errorf("got %v", err)
			}
			break
		}
	}
	r.until("silent/d", "away")
}
