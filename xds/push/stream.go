package push

import (
	"encoding/hex"
	"log/slog"
	"slices"
	"strconv"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
)

// stream is one door's. What it holds does not grow with the policy: of each kind the cut that the door has, and one in flight.
type stream struct {
	server      *Server
	rpc         discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	spoke, door string
	holder      *holder
	log         *slog.Logger

	in         chan *discoveryv3.DeltaDiscoveryRequest
	out        chan message // to the goroutine that sends, which a slow reader blocks
	failed     chan error
	superseded chan struct{} // closed when the door has another stream

	kinds  [len(kinds)]subscription
	flight *flight // nil: nothing is in flight
	nonce  uint64  // of the next response
}

// kinds are what a stream can subscribe to, in the order in which they are sent.
var kinds = [...]string{policy.KindEndpoint, policy.KindIssuer, policy.KindKeyShard, policy.KindModel, policy.KindPlatform, policy.KindTeam, delta.KindRevision}

// closing is the place of the one that closes a cut.
const closing = len(kinds) - 1

// subscription is to all resources of a kind.
type subscription struct {
	seen bool // asked for, ever: a later request without names is none for all
	on   bool
	// has is the cut whose resources of this kind the door has. Where it is nil, says are the versions that it says it has.
	has  *policy.Cut
	says map[string]string
}

// flight is a cut on its way. Page i has the nonce first+i.
type flight struct {
	to    *policy.Cut
	pages []*delta.Page
	kinds [len(kinds)]bool // that are part of it
	next  int              // page to be sent
	first uint64
	since time.Time
}

// receive brings requests in, one at a time, until the stream ends.
func (st *stream) receive() {
	for {
		r, err := st.rpc.Recv()
		if err != nil {
			st.fail(err)
			return
		}
		select {
		case st.in <- r:
		case <-st.rpc.Context().Done():
			return
		}
	}
}

// send brings pages out. It ends with the stream, also where nobody reads.
func (st *stream) send() {
	for m := range st.out {
		if err := st.rpc.SendMsg(m); err != nil {
			st.fail(err)
			return
		}
		st.server.metrics.bytes.Add(float64(m.page.Bytes))
	}
}

func (st *stream) fail(err error) {
	select {
	case st.failed <- err:
	default:
	}
}

// run serves the stream until it ends. No state of it is touched by another goroutine.
func (st *stream) run(first *discoveryv3.DeltaDiscoveryRequest, expiry <-chan time.Time) error {
	defer close(st.out)
	if err := st.take(first); err != nil {
		return err
	}
	stalled := time.NewTimer(st.server.cfg.Stall)
	defer stalled.Stop()
	for {
		changed := st.server.cfg.Cuts.Changed() // before the cut, so that no change is missed
		if st.begin() {
			stalled.Reset(st.server.cfg.Stall)
		}
		var out chan message
		next, ready := st.next()
		if ready {
			out = st.out
		}
		select {
		case out <- next:
			st.flight.next++
			st.nonce++
		case r := <-st.in:
			if err := st.take(r); err != nil {
				return err
			}
		case <-changed:
		case err := <-st.failed:
			return err
		case <-stalled.C:
			if f := st.flight; f != nil {
				return status.Errorf(codes.DeadlineExceeded, "revision %d was not answered within %v", f.to.Revision().GetNumber(), st.server.cfg.Stall)
			}
		case <-st.rpc.Context().Done():
			return status.FromContextError(st.rpc.Context().Err()).Err()
		case <-st.superseded:
			return status.Error(codes.Aborted, "the door has connected again")
		case <-expiry:
			return status.Error(codes.Unauthenticated, "the certificate of this connection has expired: connect with the renewed one")
		case <-st.server.closing:
			return status.Error(codes.Unavailable, "the hub stops")
		}
	}
}

// next is what is to be sent now.
func (st *stream) next() (message, bool) {
	f := st.flight
	if f == nil || f.next == len(f.pages) {
		return message{}, false
	}
	return message{f.pages[f.next], strconv.FormatUint(st.nonce, 10)}, true
}

// take is one request: it may change subscriptions and answer a response, both at once.
func (st *stream) take(r *discoveryv3.DeltaDiscoveryRequest) error {
	i := slices.Index(kinds[:], delta.Kind(r.GetTypeUrl()))
	if i < 0 {
		st.server.metrics.unknown.Inc()
		st.log.Debug("a type that this release does not know is asked for, and not answered", "type", short(r.GetTypeUrl()))
		return nil
	}
	if err := st.subscribe(i, r); err != nil {
		return err
	}
	if r.GetResponseNonce() != "" {
		st.answer(r)
	}
	return nil
}

// subscribe takes what a request says of subscriptions, whatever it answers.
func (st *stream) subscribe(i int, r *discoveryv3.DeltaDiscoveryRequest) error {
	sub, names := &st.kinds[i], r.GetResourceNamesSubscribe()
	all := len(names) == 0 && !sub.seen && r.GetResponseNonce() == ""
	sub.seen = true
	if slices.Contains(r.GetResourceNamesUnsubscribe(), delta.All) {
		*sub = subscription{seen: true}
		st.drop(i)
	}
	for _, name := range names {
		if name != delta.All {
			return status.Errorf(codes.InvalidArgument, "%s: there are no subscriptions to single resources here: want %q", kinds[i], delta.All)
		}
		all = true
	}
	if all && !sub.on {
		*sub = subscription{seen: true, on: true, says: r.GetInitialResourceVersions()}
		if i == closing {
			st.server.holders.says(st, delta.NumberOf(sub.says[delta.RevisionName]))
		}
	}
	return nil
}

// drop takes out of the flight what nobody wants any more and was not sent.
func (st *stream) drop(i int) {
	f := st.flight
	if f == nil {
		return
	}
	if i == closing {
		st.flight = nil
		return
	}
	f.kinds[i] = false
	rest := slices.DeleteFunc(slices.Clone(f.pages[f.next:]), func(p *delta.Page) bool { return p.Kind == kinds[i] })
	f.pages = append(slices.Clone(f.pages[:f.next]), rest...)
}

// answer is an ACK or a NACK. What answers something else than what is in flight says nothing any more.
func (st *stream) answer(r *discoveryv3.DeltaDiscoveryRequest) {
	f := st.flight
	n, err := strconv.ParseUint(r.GetResponseNonce(), 10, 64)
	if f == nil || err != nil || n < f.first || n >= f.first+uint64(f.next) {
		return
	}
	now := st.server.cfg.Now()
	number := f.to.Revision().GetNumber()
	switch {
	case r.GetErrorDetail() != nil:
		reason := short(r.GetErrorDetail().GetMessage())
		st.flight = nil
		st.server.metrics.nacks.Inc()
		st.log.Warn("a revision is refused", "revision", number, "reason", reason)
		st.server.holders.nacked(st, f.to, reason, now)
	case n == f.first+uint64(len(f.pages))-1:
		for i := range st.kinds {
			if f.kinds[i] {
				st.kinds[i].has, st.kinds[i].says = f.to, nil
			}
		}
		st.flight = nil
		st.server.metrics.acks.Inc()
		st.server.metrics.seconds.Observe(now.Sub(f.since).Seconds())
		st.server.holders.acked(st, f.to, hex.EncodeToString(f.to.Digest()), now)
		st.log.Debug("a revision is in force", "revision", number, "after", now.Sub(f.since))
	}
}

// begin puts the latest cut on its way, if the door has another and nothing is on its way.
func (st *stream) begin() bool {
	if st.flight != nil || !st.kinds[closing].on {
		return false
	}
	to := st.server.cfg.Cuts.Cut(st.spoke)
	if to == nil || st.has(to) || st.server.holders.refuses(st, to) {
		return false
	}
	f := &flight{to: to, first: st.nonce, since: st.server.cfg.Now()}
	st.believe(to)
	for i := range st.kinds {
		f.kinds[i] = st.kinds[i].on
		pages, err := st.pages(i, to)
		if err != nil {
			st.server.metrics.nacks.Inc()
			st.log.Error("a revision cannot be sent", "revision", to.Revision().GetNumber(), "err", err)
			st.server.holders.nacked(st, to, "the hub cannot send it: "+err.Error(), f.since)
			return false
		}
		f.pages = append(f.pages, pages...)
	}
	st.flight = f
	st.server.holders.sent(st, to)
	return true
}

// has says whether the door has all of a cut that it wants.
func (st *stream) has(c *policy.Cut) bool {
	for i := range st.kinds {
		if sub := &st.kinds[i]; sub.on && !same(sub.has, c) {
			return false
		}
	}
	return true
}

// believe spares a door that says it has this very content the comparison of all versions, at the beginning of a stream.
func (st *stream) believe(to *policy.Cut) {
	digest := delta.DigestOf(st.kinds[closing].says[delta.RevisionName])
	if st.kinds[closing].has != nil || digest != hex.EncodeToString(to.Digest()) {
		return
	}
	for i := range st.kinds[:closing] {
		if sub := &st.kinds[i]; sub.on && sub.has == nil {
			sub.has, sub.says = to, nil
		}
	}
}

// pages are what a kind needs.
func (st *stream) pages(i int, to *policy.Cut) ([]*delta.Page, error) {
	sub := &st.kinds[i]
	switch {
	case !sub.on:
		return nil, nil
	case i == closing:
		page, err := delta.Closing(to)
		return []*delta.Page{page}, err
	case sub.has == nil && len(sub.says) > 0:
		return resume(kinds[i], sub.says, to)
	}
	return st.server.plans.pages(kinds[i], sub.has, to)
}
