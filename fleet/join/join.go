// Package join is the gRPC service through which shims join a door's fleet (api/worker/v1).
//
// It promises that nobody joins without the spoke's token, or a certificate that names the worker, that a worker is in the
// fleet exactly as long as its stream lives and its beats arrive, and that a worker is never more than three beats late. It
// does not dial workers and does not look whether they serve: the shim does.
package join

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity"
)

const (
	// DefaultBeat is how often a shim must report when Server.Beat is zero.
	DefaultBeat = time.Second
	// Missed beats end a stream.
	missedBeats = 3
	// maxReason is how much of a shim's explanation is kept, in bytes, and mostDegraded how many things that make it worse.
	maxReason    = 256
	mostDegraded = 16
)

// Server implements worker.v1.Fleet. With neither a Token nor Certified it lets nobody in; with both, both are needed.
type Server struct {
	workerv1.UnimplementedFleetServer

	Fleet *fleet.Fleet
	Token string // the spoke's join token; empty: none is asked for
	// Certified: a worker needs a certificate of TLS that names it, in this Spoke.
	Certified bool
	Spoke     string
	Door      string // name of the door
	// Keys are what the door signs contexts with, and a channel that is closed when they change: Keys of an identity.Minter.
	Keys func() ([]identity.DoorKey, <-chan struct{})
	// Seed is that of the hashes of blocks, and a channel that is closed when it changes; nil: there is none.
	Seed func() (uint64, <-chan struct{})
	// Began is told which admissions a worker of an endpoint, at addr, has begun to answer as streams; nil: nobody wants to know.
	Began func(admission, endpoint, addr string)
	// Macs: each shim that takes contexts by MAC gets a secret. Only where nobody can listen in on its way, and where a request
	// goes to no worker but those that its admission named.
	Macs bool
	Own  []string      // where the door itself listens: no worker is there, and a prompt must not go there
	Beat time.Duration // how often a shim reports; DefaultBeat when zero
	Log  *slog.Logger  // slog.Default() when nil

	queue int // for tests; 0: queueMost

	mu    sync.Mutex
	shims map[string]map[*outbox]struct{} // by endpoint

	secrets secrets
}

// Join runs one worker's stream: Hello, Welcome, then beats until either side ends it.
func (s *Server) Join(stream workerv1.Fleet_JoinServer) error {
	caller, err := s.admit(stream.Context())
	if err != nil {
		return s.refuse(stream.Context(), "", err)
	}
	in := &inbox{messages: make(chan *workerv1.JoinRequest), failed: make(chan error, 1)}
	go in.run(stream)
	first, err := s.next(stream.Context(), in)
	if err != nil {
		return err
	}
	w, err := worker(first.GetHello())
	if err != nil {
		return s.refuse(stream.Context(), first.GetHello().GetWorker(), err)
	}
	if err := s.named(caller, &w); err != nil {
		return s.refuse(stream.Context(), w.Name, err)
	}
	if s.isOwn(w.Addr) {
		return s.refuse(stream.Context(), w.Name, status.Errorf(codes.InvalidArgument, "address %q is the door's own", w.Addr))
	}
	leave, err := s.Fleet.Join(w)
	if err != nil {
		return s.refuse(stream.Context(), w.Name, refusal(err))
	}
	defer leave()
	out := newOutbox(cmp.Or(s.queue, queueMost))
	defer s.register(w.Endpoint, out)()
	mac := s.share(first.GetHello(), &w)
	defer mac.forget() // before the worker leaves, and another may come to its address
	go s.tell(stream, out, mac)
	log := s.log().With("worker", w.Name, "endpoint", w.Endpoint, "addr", w.Addr)
	log.Info("worker joined", "engine", w.Engine, "epoch", w.Epoch, "version", w.Version)
	err = s.follow(stream.Context(), in, &w, mac, log)
	log.Info("worker left", "cause", cause(err))
	return err
}

// isOwn says whether an address, however it is written, is the door's. A listener on an unspecified address is at every
// address of its host.
func (s *Server) isOwn(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && slices.ContainsFunc(s.Own, func(own string) bool {
		o, err := net.ResolveTCPAddr("tcp", own) // fails for a Unix socket, where no worker is
		if err != nil || o.Port != int(a.Port()) {
			return false
		}
		everywhere := o.IP == nil || o.IP.IsUnspecified()
		return everywhere && isHosts(a.Addr()) || o.IP.Equal(a.Addr().AsSlice())
	})
}

// isHosts says whether an address is one of this host's.
func isHosts(a netip.Addr) bool {
	if a.Unmap().IsLoopback() {
		return true
	}
	list, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(list, func(l net.Addr) bool {
		p, err := netip.ParsePrefix(l.String())
		return err == nil && p.Addr().Unmap() == a.Unmap()
	})
}

// follow applies each Status to the fleet, and passes Begun on, until the stream ends.
func (s *Server) follow(ctx context.Context, in *inbox, w *fleet.Worker, mac *shared, log *slog.Logger) error {
	var worse []string
	for {
		m, err := s.next(ctx, in)
		if errors.Is(err, errEnd) {
			return nil
		}
		if err != nil {
			return err
		}
		if b := m.GetBegun(); b != nil {
			s.began(b, w)
			continue
		}
		st := m.GetStatus()
		if st == nil {
			return status.Error(codes.InvalidArgument, "want Status: Hello is said once")
		}
		state, ok := states[st.State]
		if !ok {
			return status.Errorf(codes.InvalidArgument, "state %d is not known", st.State)
		}
		mac.known() // a shim speaks when it has taken the Welcome in
		told := statusOf(st, time.Now())
		s.Fleet.Report(w.Name, told)
		if s.Fleet.Update(w.Name, state) {
			log.Info("worker changed", "state", state.String(), "reason", told.Reason)
		}
		if !slices.Equal(told.Degraded, worse) {
			worse = told.Degraded
			log.Warn("worker's degradation changed", "degraded", worse)
		}
	}
}

func (s *Server) began(b *workerv1.Begun, w *fleet.Worker) {
	if s.Began == nil {
		return
	}
	for _, id := range b.Admissions {
		s.Began(id, w.Endpoint, w.Addr)
	}
}

// next waits for one message, at most three beats. Each beat is waited for by itself: a door that was stopped for a while
// wakes up with one beat missed, and finds the others' in its sockets, instead of taking its own sleep for theirs.
func (s *Server) next(ctx context.Context, in *inbox) (*workerv1.JoinRequest, error) {
	beat := time.NewTicker(s.beat()) // a ticker drops what nobody took
	defer beat.Stop()
	for missed := 0; missed < missedBeats; {
		select {
		case m := <-in.messages:
			return m, nil
		case err := <-in.failed:
			return nil, err
		case <-beat.C:
			missed++
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	return nil, status.Errorf(codes.DeadlineExceeded, "no status for %v", missedBeats*s.beat())
}

func (s *Server) beat() time.Duration {
	if s.Beat > 0 {
		return s.Beat
	}
	return DefaultBeat
}

// refuse tells the log who was not let in, and why, and answers the reason.
func (s *Server) refuse(ctx context.Context, name string, err error) error {
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	s.log().Warn("worker refused", "worker", printable(name), "from", from, "cause", cause(err))
	return err
}

func (s *Server) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.Default()
}
