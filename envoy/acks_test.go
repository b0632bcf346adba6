package envoy

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	statusv3 "google.golang.org/genproto/googleapis/rpc/status"
)

type assignmentMessage = *endpointv3.ClusterLoadAssignment

func hostPort(a *corev3.Address) string {
	return net.JoinHostPort(a.GetSocketAddress().Address, strconv.Itoa(int(a.GetSocketAddress().GetPortValue())))
}

// talk is a conversation with one Envoy, told by the test.
type talk struct {
	*acks
	got map[string]uint64 // endpoints that were acknowledged, and at which version
}

func newTalk() *talk {
	x := &talk{}
	x.acks = newAcks(func(has map[string]uint64) { x.got = has }, slog.New(slog.NewTextHandler(io.Discard, nil)), newMetrics(nil))
	return x
}

func (x *talk) sends(kind, nonce string, pairs ...string) {
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: kind, Nonce: nonce}
	for i := 0; i < len(pairs); i += 2 {
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: ClusterName(pairs[i]), Version: pairs[i+1]})
	}
	x.response(1, r)
}

func (x *talk) removes(kind, nonce, endpoint string) {
	x.response(1, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: kind, Nonce: nonce, RemovedResources: []string{ClusterName(endpoint)}})
}

// wants names endpoint resources as the snapshot does: "a1" is the endpoint a with the content 1.
func (x *talk) wants(view uint64, resources ...string) { x.expect(view, content(resources...)) }

func content(resources ...string) map[string]string {
	want := map[string]string{}
	for _, r := range resources {
		want[ClusterName(r[:1])] = r[1:]
	}
	return want
}

func (x *talk) says(nonce, refusal string, change func(*discoveryv3.DeltaDiscoveryRequest)) {
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResponseNonce: nonce}
	if refusal != "" {
		r.ErrorDetail = &statusv3.Status{Message: refusal}
	}
	if change != nil {
		change(r)
	}
	x.request(1, r)
}

func TestAcks(t *testing.T) {
	const eds, cds = resource.EndpointType, resource.ClusterType
	a1 := func(x *talk) { // a conversation that goes well
		x.wants(5, "a1")
		x.sends(cds, "n0", "a", "7")
		x.says("n0", "", func(r *discoveryv3.DeltaDiscoveryRequest) { r.TypeUrl = cds })
		x.sends(eds, "n1", "a", "1")
		x.says("n1", "", nil)
	}
	for name, c := range map[string]struct {
		play func(*talk)
		want string
	}{
		"sent is not held":     {func(x *talk) { x.wants(5, "a1"); x.sends(eds, "n1", "a", "1") }, ""},
		"acknowledged":         {a1, "a5"},
		"refused":              {func(x *talk) { x.wants(5, "a1"); x.sends(eds, "n1", "a", "1"); x.says("n1", "no", nil) }, ""},
		"another nonce":        {func(x *talk) { x.wants(5, "a1"); x.sends(eds, "n1", "a", "1"); x.says("n2", "", nil) }, ""},
		"another kind's nonce": {func(x *talk) { x.wants(5, "a1"); x.sends(cds, "n1", "a", "1"); x.says("n1", "", nil) }, ""},
		"an older content":     {func(x *talk) { x.sends(eds, "n1", "a", "0"); x.wants(5, "a1"); x.says("n1", "", nil) }, ""},
		"one of two":           {func(x *talk) { a1(x); x.wants(6, "a1", "b1") }, "a6"},
		"two, one by one": {func(x *talk) {
			x.wants(5, "a1", "b1")
			x.sends(eds, "n1", "a", "1")
			x.sends(eds, "n2", "b", "1")
			x.says("n1", "", nil)
			x.says("n2", "", nil)
		}, "a5 b5"},
		"held already":                    {func(x *talk) { a1(x); x.wants(6, "a1") }, "a6"},
		"one that changes stays as it is": {func(x *talk) { a1(x); x.wants(6, "a2") }, "a5"},
		"A, bad B, A again": {func(x *talk) {
			a1(x)
			x.wants(6, "a2")
			x.sends(eds, "n2", "a", "2")
			x.says("n2", "no", nil)
			x.wants(7, "a1")
		}, "a7"},
		"not in the policy yet":                {func(x *talk) { x.wants(5); x.wants(6) }, ""},
		"named by the policy now":              {func(x *talk) { x.wants(5); x.wants(5, "a1") }, ""},
		"gone from the policy":                 {func(x *talk) { a1(x); x.wants(6) }, ""},
		"gone and back at once":                {func(x *talk) { a1(x); x.wants(6); x.removes(cds, "n2", "a"); x.wants(7, "a1") }, ""},
		"gone, and back before Envoy was told": {func(x *talk) { a1(x); x.wants(6); x.wants(7, "a1") }, "a7"},
		"unsubscribed": {func(x *talk) {
			x.sends(eds, "n1", "a", "1")
			x.says("n1", "", nil)
			x.says("", "", func(r *discoveryv3.DeltaDiscoveryRequest) { r.ResourceNamesUnsubscribe = []string{ClusterName("a")} })
			x.wants(5, "a1")
		}, ""},
		"held before the stream": {func(x *talk) {
			x.wants(5, "a1")
			x.says("", "", func(r *discoveryv3.DeltaDiscoveryRequest) { r.InitialResourceVersions = content("a1") })
		}, "a5"},
		"the stream broke": {func(x *talk) { a1(x); x.close(1); x.open(2, process{}); x.wants(6, "a2") }, "a5"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTalk()
			x.open(1, process{})
			c.play(x)
			var got []string
			for _, endpoint := range slices.Sorted(maps.Keys(x.got)) {
				got = append(got, endpoint+strconv.FormatUint(x.got[endpoint], 10))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("acknowledged %v, want %s", got, c.want)
			}
		})
	}
}

// TestSecretsComeFirst: a worker that is reached by TLS cannot be picked before Envoy has what that needs.
func TestSecretsComeFirst(t *testing.T) {
	secret := func(r *discoveryv3.DeltaDiscoveryRequest) { r.TypeUrl = resource.SecretType }
	x := newTalk()
	x.needed = []string{ClusterName("c"), ClusterName("k")} // names as good as any
	x.open(1, process{})
	x.wants(5, "a1")
	x.sends(resource.EndpointType, "n1", "a", "1")
	x.says("n1", "", nil)
	x.sends(resource.SecretType, "n2", "c", "1")
	x.says("n2", "", secret)
	x.sends(resource.SecretType, "n3", "k", "1")
	x.says("n3", "no such file", secret)
	if len(x.got) != 0 {
		t.Errorf("acknowledged %v, and a secret was refused", x.got)
	}
	x.sends(resource.SecretType, "n4", "k", "2")
	x.says("n4", "", secret)
	if x.got["a"] != 5 {
		t.Errorf("acknowledged %v", x.got)
	}
	x.close(1)
	x.open(1, process{})
	x.wants(6, "a1")
	for kind, names := range map[string][]string{resource.EndpointType: {"a1"}, resource.SecretType: {"c1", "k2"}} {
		x.says("", "", func(r *discoveryv3.DeltaDiscoveryRequest) {
			r.TypeUrl, r.InitialResourceVersions = kind, content(names...)
		})
	}
	if x.got["a"] != 6 {
		t.Errorf("after the stream broke: acknowledged %v", x.got)
	}
	x.says("", "", func(r *discoveryv3.DeltaDiscoveryRequest) {
		secret(r)
		r.ResourceNamesUnsubscribe = []string{ClusterName("c")}
	})
	x.wants(7, "a1")
	if x.got["a"] != 6 {
		t.Errorf("one is not held any more: acknowledged %v", x.got)
	}
}

func TestNacksAreCounted(t *testing.T) {
	x := newTalk()
	x.open(1, process{})
	x.sends(resource.EndpointType, "n1", "a", "1")
	x.says("n1", "port out of range", nil)
	if n := testutil.ToFloat64(x.metrics.nacks.WithLabelValues("ClusterLoadAssignment")); n != 1 {
		t.Errorf("%v refusals counted", n)
	}
}

// TestDeath: whose requests are whose when one Envoy follows another.
func TestDeath(t *testing.T) {
	alive, _ := look(int32(os.Getpid()))
	dead, unknown := alive, process{}
	dead.start += "1" // its pid was given to another
	for name, c := range map[string]struct {
		play          func(*talk)
		dead, waiting bool
		until         int64 // the stream whose opening ends the dead one's time; 0: now
	}{
		"nobody came":             {func(*talk) {}, false, false, 0},
		"it is on the line":       {func(x *talk) { x.open(1, dead) }, false, false, 0},
		"it died":                 {func(x *talk) { x.open(1, dead); x.close(1) }, true, false, 0},
		"told twice":              {func(x *talk) { x.open(1, dead); x.close(1); x.close(1); x.death() }, false, false, 0},
		"it runs":                 {func(x *talk) { x.open(1, alive); x.close(1) }, false, true, 0},
		"it is back":              {func(x *talk) { x.open(1, alive); x.close(1); x.open(2, alive) }, false, false, 0},
		"back before it had left": {func(x *talk) { x.open(1, alive); x.open(2, alive); x.close(1) }, false, false, 0},
		"half of it is seen":      {func(x *talk) { x.open(1, dead); x.open(2, dead); x.close(1) }, false, false, 0},
		"another came after":      {func(x *talk) { x.open(1, dead); x.close(1); x.open(2, alive) }, true, false, 2},
		"another came before":     {func(x *talk) { x.open(1, dead); x.open(2, alive); x.close(1) }, true, false, 2},
		"one died, one runs":      {func(x *talk) { x.open(1, dead); x.open(2, alive); x.close(1); x.close(2) }, true, true, 0},
		"unknown":                 {func(x *talk) { x.open(1, unknown); x.close(1) }, true, false, 0},
		"unknown, dials anew":     {func(x *talk) { x.open(1, unknown); x.open(2, unknown); x.close(1) }, false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTalk()
			c.play(x)
			now := time.Now()
			dead, waiting := x.death()
			died := x.succession(now)
			want := now
			if c.until != 0 {
				want = x.streams[c.until].opened
			}
			if dead != c.dead || waiting != c.waiting || dead && !died.Equal(want) {
				t.Errorf("dead %v since %v, waiting %v; want %+v", dead, died, waiting, c)
			}
		})
	}
}

func TestOnlyDelta(t *testing.T) {
	if err := newTalk().callbacks().OnStreamOpen(context.Background(), 1, ""); err == nil {
		t.Error("the state-of-the-world protocol was let in")
	}
}
