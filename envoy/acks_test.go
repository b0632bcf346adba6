package envoy

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strconv"
	"testing"

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
	got []uint64 // versions that were acknowledged
}

func newTalk() *talk {
	x := &talk{}
	x.acks = newAcks(func(v uint64) { x.got = append(x.got, v) }, slog.New(slog.NewTextHandler(io.Discard, nil)), newMetrics(nil))
	return x
}

func (x *talk) last() uint64 {
	if len(x.got) == 0 {
		return 0
	}
	return x.got[len(x.got)-1]
}

func (x *talk) sends(kind, nonce string, pairs ...string) {
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: kind, Nonce: nonce}
	for i := 0; i < len(pairs); i += 2 {
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: pairs[i], Version: pairs[i+1]})
	}
	x.response(1, r)
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
	a1, ab := map[string]string{"a": "1"}, map[string]string{"a": "1", "b": "1"}
	for name, c := range map[string]struct {
		play func(*talk)
		want uint64
	}{
		"sent is not held":     {func(x *talk) { x.expect(5, a1); x.sends(eds, "n1", "a", "1") }, 0},
		"acknowledged":         {func(x *talk) { x.expect(5, a1); x.sends(eds, "n1", "a", "1"); x.says("n1", "", nil) }, 5},
		"refused":              {func(x *talk) { x.expect(5, a1); x.sends(eds, "n1", "a", "1"); x.says("n1", "no", nil) }, 0},
		"another nonce":        {func(x *talk) { x.expect(5, a1); x.sends(eds, "n1", "a", "1"); x.says("n2", "", nil) }, 0},
		"another kind's nonce": {func(x *talk) { x.expect(5, a1); x.sends(cds, "n1", "a", "1"); x.says("n1", "", nil) }, 0},
		"an older content":     {func(x *talk) { x.sends(eds, "n1", "a", "0"); x.expect(5, a1); x.says("n1", "", nil) }, 0},
		"one of two":           {func(x *talk) { x.expect(5, ab); x.sends(eds, "n1", "a", "1"); x.says("n1", "", nil) }, 0},
		"two, one by one": {func(x *talk) {
			x.expect(5, ab)
			x.sends(eds, "n1", "a", "1")
			x.sends(eds, "n2", "b", "1")
			x.says("n1", "", nil)
			x.says("n2", "", nil)
		}, 5},
		"held already": {func(x *talk) { x.expect(5, a1); x.sends(eds, "n1", "a", "1"); x.says("n1", "", nil); x.expect(6, a1) }, 6},
		"A, bad B, A again": {func(x *talk) {
			x.expect(5, a1)
			x.sends(eds, "n1", "a", "1")
			x.says("n1", "", nil)
			x.expect(6, map[string]string{"a": "bad"})
			x.sends(eds, "n2", "a", "bad")
			x.says("n2", "no", nil)
			x.expect(7, a1)
		}, 7},
		"nothing to hold": {func(x *talk) { x.expect(5, nil) }, 5},
		"unsubscribed": {func(x *talk) {
			x.sends(eds, "n1", "a", "1")
			x.says("n1", "", nil)
			x.says("", "", func(r *discoveryv3.DeltaDiscoveryRequest) { r.ResourceNamesUnsubscribe = []string{"a"} })
			x.expect(5, a1)
		}, 0},
		"held before the stream": {func(x *talk) {
			x.expect(5, a1)
			x.says("", "", func(r *discoveryv3.DeltaDiscoveryRequest) { r.InitialResourceVersions = a1 })
		}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTalk()
			x.open(1, process{})
			c.play(x)
			if x.last() != c.want {
				t.Errorf("acknowledged %v, want %d", x.got, c.want)
			}
		})
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

func TestGoneIsTheEndOfTheLastStream(t *testing.T) {
	x := newTalk()
	x.open(1, process{})
	x.open(2, process{}) // Envoy dials anew before the old stream has ended
	x.close(1)
	x.close(1)
	select {
	case <-x.gone:
		t.Fatal("gone while a stream is open")
	default:
	}
	x.close(2)
	<-x.gone
	x.open(3, process{})
	x.close(3)
	if <-x.gone; x.connected() { // the next one's end is told as well
		t.Error("connected without a stream")
	}
}

func TestOnlyDelta(t *testing.T) {
	if err := newTalk().callbacks().OnStreamOpen(context.Background(), 1, ""); err == nil {
		t.Error("the state-of-the-world protocol was let in")
	}
}
