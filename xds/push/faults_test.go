package push

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
	"github.com/spokegate/spokegate/xds/push/pushtest"
)

// Each test is a fault that was reported of a control plane for xDS; the numbers are those of go-control-plane's issues.

// TestOldWatchIsCancelled (446): what was published while a revision was on its way does not come twice, nor after what is newer.
func TestOldWatchIsCancelled(t *testing.T) {
	r := newRig(t, nil)
	r.teams("a")
	c := r.dial("s/d").follow(policy.KindTeam)
	_, end := c.whole()
	r.teams("b")
	r.teams("c")
	c.ack(end)
	c.gets("3: Team b c")
	r.teams("d")
	c.gets("4: Team d")
}

// TestWatchedAgainAfterASend (458).
func TestWatchedAgainAfterASend(t *testing.T) {
	r := newRig(t, nil)
	r.teams("a")
	c := r.dial("s/d").follow(policy.KindTeam)
	c.gets("1: Team a")
	for i := 2; i < 7; i++ {
		r.teams(fmt.Sprint("t", i))
		c.gets(fmt.Sprintf("%d: Team t%d", i, i))
	}
}

// TestNewResourceOfAnEqualVersion (463, 1301): versions are compared by name, and no version of the whole hides one.
func TestNewResourceOfAnEqualVersion(t *testing.T) {
	r := newRig(t, nil)
	body := pushtest.Team("x", 1).Body
	one := policy.NewResource(policy.KindTeam, "one", body)
	two := policy.NewResource(policy.KindTeam, "two", body)
	if one.Version != two.Version {
		t.Fatal("the versions differ")
	}
	r.Next([]policy.Resource{one})
	c := r.dial("s/d").follow(policy.KindTeam)
	c.gets("1: Team one")
	r.Next([]policy.Resource{two})
	c.gets("2: Team two")
	c.close()
	again := r.dial("s/d")
	again.subscribe(policy.KindTeam, map[string]string{"one": one.Version})
	again.follow()
	again.gets("2: Team two")
}

// TestStreamsComeAndGoWhileRevisionsCome (503, 875): neither waits for the other for ever.
func TestStreamsComeAndGoWhileRevisionsCome(t *testing.T) {
	r := newRig(t, nil)
	r.teams("a")
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			for range 5 {
				c := r.dial(fmt.Sprintf("s/d%d", i)).follow(policy.KindTeam)
				for range 3 {
					_, end := c.whole()
					c.ack(end)
					r.teams(fmt.Sprint("more", i))
				}
				c.close()
			}
		})
	}
	work.Wait()
	last := r.teams("last")
	c := r.dial("s/d").follow(policy.KindTeam)
	if got, _ := c.whole(); !strings.HasPrefix(got, fmt.Sprint(last.Revision().GetNumber(), ":")) {
		t.Errorf("at last came %s, want revision %d", got, last.Revision().GetNumber())
	}
}

// TestUnsubscribedAndSubscribedAgain (583): everything is sent anew, though nothing has changed.
func TestUnsubscribedAndSubscribedAgain(t *testing.T) {
	r := newRig(t, nil)
	r.Next(append(pushtest.Base(), pushtest.Team("a", 1)))
	c := r.dial("s/d").follow(policy.KindTeam, policy.KindModel)
	c.gets("1: Model m, Team a")
	c.unsubscribe(policy.KindTeam)
	c.subscribe(policy.KindTeam, nil)
	c.gets("1: Team a")
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: delta.TypeURL(policy.KindTeam),
		ResourceNamesSubscribe: []string{delta.All}, ResourceNamesUnsubscribe: []string{delta.All}, ResponseNonce: "1"})
	c.gets("1: Team a") // also at once, and beside an answer that is long stale
}

// TestFirstEmptyWildcardIsAnswered (927): also where there is nothing to send, and without the name of the wildcard.
func TestFirstEmptyWildcardIsAnswered(t *testing.T) {
	r := newRig(t, nil)
	r.Next(nil)
	c := r.dial("s/d")
	for _, kind := range kinds {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: delta.TypeURL(kind)})
	}
	c.gets("1: ")
	r.teams("a")
	c.gets("2: Team a")
}

// TestUnknownTypeIsNoPanic (1036): it is not answered, and hinders nothing.
func TestUnknownTypeIsNoPanic(t *testing.T) {
	r := newRig(t, nil)
	r.teams("a")
	c := r.dial("s/d")
	for _, url := range []string{"", "type.googleapis.com/envoy.config.cluster.v3.Cluster", delta.TypeURL("Tomorrow"), "\x00"} {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: []string{delta.All}, ResponseNonce: "7"})
	}
	c.follow(policy.KindTeam)
	c.gets("1: Team a")
}

// TestNameThatIsNotThere (1319): single names cannot be subscribed to, so there is none that could be missing, nor a loop about
// it: the caller is told.
func TestNameThatIsNotThere(t *testing.T) {
	r := newRig(t, nil)
	r.teams("a")
	c := r.dial("s/d")
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: delta.TypeURL(policy.KindTeam), ResourceNamesSubscribe: []string{"gone"}})
	_, err := c.stream.Recv()
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `want "*"`) {
		t.Errorf("got %v", err)
	}
	r.until("s/d", "away")
}

// TestNothingOfAKindAfterUnsubscribing (1498): not even what was about to be sent.
func TestNothingOfAKindAfterUnsubscribing(t *testing.T) {
	r := newRig(t, nil)
	var big []policy.Resource
	for i := range 24 { // more than may be on the way unread, so that most waits in the hub
		big = append(big, policy.Encode(policy.KindTeam, fmt.Sprintf("t%02d", i), &policyv1.Team{Name: "t", Models: []string{strings.Repeat("m", 900<<10)}}))
	}
	r.Next(append(big, pushtest.Base()[0]))
	c := r.dial("s/d", grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10)).follow(policy.KindTeam, policy.KindEndpoint)
	first := c.recv()
	if delta.Kind(first.TypeUrl) != policy.KindEndpoint {
		t.Fatalf("first came %s", first.TypeUrl)
	}
	c.unsubscribe(policy.KindTeam)
	pages := 0
	for m := c.recv(); delta.Kind(m.TypeUrl) != delta.KindRevision; m = c.recv() {
		if pages++; pages > 12 {
			t.Fatal("all of it came")
		}
	}
}

// TestNoSecretsInDebugLogs (601).
func TestNoSecretsInDebugLogs(t *testing.T) {
	r := newRig(t, nil)
	hash := strings.Repeat("S3cr", 8)
	r.Next([]policy.Resource{policy.Encode(policy.KindKeyShard, "1331", &policyv1.KeyShard{Number: 0x533, Keys: []*policyv1.Key{{Id: "k", Sha256: []byte(hash)}}})})
	c := r.dial("s/d").follow(policy.KindKeyShard)
	c.gets("1: KeyShard 1331")
	r.teams("a")
	_, end := c.whole()
	c.nack(end, "no\nlines \x1b[31m of my own")
	r.until("s/d", "refused")
	text := r.log.String()
	if !strings.Contains(text, "a revision is in force") || !strings.Contains(text, "lines") {
		t.Fatalf("the log is not at work: %s", text)
	}
	for _, secret := range []string{hash, fmt.Sprintf("%x", hash), token, "\x1b"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}

// TestAckedRefusedAndBack (grpc-go 7692): A in force, B refused, A again: the door hears of it, and it counts as in force.
func TestAckedRefusedAndBack(t *testing.T) {
	r := newRig(t, nil)
	r.teams("a")
	c := r.dial("s/d").follow(policy.KindTeam)
	c.gets("1: Team a")
	r.teams("b")
	_, end := c.whole()
	c.nack(end, "b is not good")
	if h := r.until("s/d", "refused"); h.Nack != "b is not good" || h.NackRevision != 2 || h.Revision != 1 || h.NackAt.IsZero() {
		t.Errorf("%+v", h)
	}
	r.Next(nil, gone("b")...)
	c.gets("3: ")
	if h := r.until("s/d", "current"); h.Nack != "" || h.Revision != 3 {
		t.Errorf("%+v", h)
	}
}

// TestDoorIsAhead of a hub whose database was restored: that is told apart from a revision that is bad, until numbers are above.
func TestDoorIsAhead(t *testing.T) {
	for _, has := range []uint64{40, 1} { // a later one; another of the same number
		t.Run(fmt.Sprint(has), func(t *testing.T) {
			r := newRig(t, nil)
			r.teams("a")
			held := (&policy.Cut{}).Next(&policyv1.Revision{Number: has}, []policy.Resource{pushtest.Team("b", 1)}, nil)
			c := r.dial("s/d")
			c.subscribe(policy.KindTeam, nil)
			c.subscribe(delta.KindRevision, map[string]string{delta.RevisionName: delta.Version(held)})
			_, end := c.whole()
			c.nack(end, "not newer")
			if h := r.until("s/d", "ahead"); h.Says != has || h.NackRevision != 1 || h.Nack != "not newer" {
				t.Errorf("%+v", h)
			}
			r.Publish(r.Cut("s").Next(&policyv1.Revision{Number: has + 1}, nil, nil), nil)
			c.gets(fmt.Sprintf("%d: Team a", has+1))
			if h := r.until("s/d", "current"); h.Says != has+1 || h.Revision != has+1 {
				t.Errorf("%+v", h)
			}
		})
	}
}
