package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds"
	"github.com/spokegate/spokegate/xds/delta"
)

// Run follows the hub until ctx is done. See [xds.Source].
func (h *Hub) Run(ctx context.Context, held *policy.Cut, offer func(xds.Candidate)) error {
	h.held = held
	pause := leastPause
	for ctx.Err() == nil {
		heard, err := h.follow(ctx, offer)
		h.lost(ctx, err)
		if status.Code(err) == codes.Unauthenticated { // the certificate has expired, say: perhaps there is a newer one
			if err := h.dial(); err != nil {
				return err
			}
		}
		if heard {
			pause = leastPause
		}
		wait := pause/2 + rand.N(pause) // so that not all spokes call at once
		if errors.Is(err, errAgain) {
			wait = h.cfg.Again/2 + rand.N(h.cfg.Again)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		pause = min(2*pause, h.cfg.Retry)
	}
	return nil
}

const leastPause = 100 * time.Millisecond

// errAgain ends a stream so that what was refused on it is sent once more.
var errAgain = errors.New("the revision is fetched once more")

// follow has one stream, until it ends. heard: the hub has sent something.
func (h *Hub) follow(ctx context.Context, offer func(xds.Candidate)) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if h.open, err = discoveryv3.NewAggregatedDiscoveryServiceClient(h.connection()).DeltaAggregatedResources(ctx, grpc.ForceCodecV2(newCodec())); err != nil {
		return false, err
	}
	h.stage, h.again, h.failed = newStage(h.held), false, nil
	if err := h.subscribe(); err != nil {
		return false, h.reason(err)
	}
	for {
		r := &incoming{}
		if err := h.open.RecvMsg(r); err != nil {
			return heard, err
		}
		heard = true
		if err := h.take(r, offer); err != nil {
			return heard, h.reason(err)
		}
		if h.again {
			return heard, errAgain
		}
	}
}

// reason is why a stream failed on which something could not be sent.
func (h *Hub) reason(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	for {
		if err := h.open.RecvMsg(&incoming{}); err != nil {
			return err
		}
	}
}

// subscribe asks for everything, and says what is there. The Revision comes last: it closes the list.
func (h *Hub) subscribe() error {
	says := map[string]map[string]string{}
	if h.held != nil {
		for r := range h.held.All() {
			if says[r.Kind] == nil {
				says[r.Kind] = map[string]string{}
			}
			says[r.Kind][r.Name] = r.Version
		}
		says[delta.KindRevision] = map[string]string{delta.RevisionName: delta.Version(h.held)}
	}
	instance, err := structpb.NewStruct(map[string]any{delta.MetadataInstance: fmt.Sprintf("%s/%d", h.started, h.attempt)})
	if err != nil {
		return err
	}
	node := &corev3.Node{Id: delta.Node(h.cfg.Spoke, h.cfg.Door), Cluster: h.cfg.Spoke, Metadata: instance,
		UserAgentName: "spokegate", UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: h.cfg.Version}}
	for _, kind := range append(append([]string(nil), policy.Kinds...), delta.KindRevision) {
		err := h.open.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: delta.TypeURL(kind),
			ResourceNamesSubscribe: []string{delta.All}, InitialResourceVersions: says[kind]})
		if err != nil {
			return err
		}
		node = nil // once is enough
	}
	return nil
}

// take is one response. What is not whole, or not good, the agent hears of, and refuses.
func (h *Hub) take(r *incoming, offer func(xds.Candidate)) error {
	h.answers = r
	if delta.Kind(r.typeURL) != delta.KindRevision {
		err := h.stage.add(r)
		if err == nil {
			return h.answer("")
		}
		h.stage = newStage(h.held)
		offer(xds.Candidate{From: h.from(), Err: err})
		return h.failed
	}
	cut, digest, err := h.stage.close(r)
	h.stage = newStage(h.held)
	if err == nil && !bytes.Equal(digest, cut.Digest()) {
		h.again = true // the two sides see differently what is here: that is told anew
	}
	h.offered = cut
	offer(xds.Candidate{Cut: cut, Digest: digest, From: h.from(), Err: err})
	h.offered = nil
	return h.failed
}

func (h *Hub) from() string { return "hub " + h.cfg.Address }

// answer is the ACK of a response, or with a reason the NACK.
func (h *Hub) answer(nack string) error {
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: h.answers.typeURL, ResponseNonce: h.answers.nonce}
	if nack != "" {
		r.ErrorDetail = status.New(codes.InvalidArgument, strings.ToValidUTF8(nack[:min(len(nack), mostReason)], "")).Proto()
	}
	return h.open.Send(r)
}

// mostReason is how much of a reason goes to the hub, in bytes.
const mostReason = 2048

// Ack implements xds.Source.
func (h *Hub) Ack(uint64) {
	if h.offered != nil {
		h.held = h.offered
	}
	h.stage = newStage(h.held)
	h.failed = h.answer("")
	h.reached()
}

// Nack implements xds.Source.
func (h *Hub) Nack(reason string, again bool) {
	h.again = h.again || again
	if h.again {
		h.attempt++
	}
	h.failed = h.answer(reason)
	h.reached()
}
