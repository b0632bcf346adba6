package push

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
	"github.com/spokegate/spokegate/xds/delta"
)

// reporter is one door's stream of reports.
type reporter struct {
	server      *Server
	rpc         hubv1.Spokes_ReportServer
	spoke, door string
	store       string // where it counts

	in     chan *hubv1.ReportRequest
	failed chan error
	told   uint64 // of used: what the door has heard
}

// Report serves one door's reports.
func (s *Server) Report(rpc hubv1.Spokes_ReportServer) error {
	leave, err := s.enter(&s.reports)
	if err != nil {
		return err
	}
	defer leave()
	caller, err := s.caller(rpc.Context())
	if err != nil {
		return s.refuse("identity", from(rpc.Context()), err)
	}
	unshare, err := s.share(caller)
	if err != nil {
		return err
	}
	defer unshare()
	rep := &reporter{server: s, rpc: rpc, in: make(chan *hubv1.ReportRequest), failed: make(chan error, 1)}
	go rep.receive()
	first, err := awaitFirst(rpc.Context(), rep.in, rep.failed, s.closing)
	if err != nil {
		return err
	}
	door := first.GetDoor()
	if rep.spoke, rep.door, err = s.named(caller, delta.Node(door.GetSpoke(), door.GetName())); err != nil {
		return s.refuse("identity", from(rpc.Context()), err)
	}
	rep.store = rep.spoke + "/" + short(door.GetStore())
	expiry, stop := expiry(caller, s.cfg.Now())
	defer stop()
	return ended(rep.run(first, expiry))
}

func (rep *reporter) receive() {
	for {
		r, err := rep.rpc.Recv()
		if err != nil {
			rep.failed <- err
			return
		}
		select {
		case rep.in <- r:
		case <-rep.rpc.Context().Done():
			return
		}
	}
}

func (rep *reporter) run(first *hubv1.ReportRequest, expiry <-chan time.Time) error {
	if err := rep.take(first); err != nil {
		return err
	}
	tick := time.NewTicker(rep.server.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case r := <-rep.in:
			if err := rep.take(r); err != nil {
				return err
			}
		case <-tick.C:
			if err := rep.tell(); err != nil {
				return err
			}
		case err := <-rep.failed:
			return err
		case <-rep.rpc.Context().Done():
			return status.FromContextError(rep.rpc.Context().Err()).Err()
		case <-expiry:
			return status.Error(codes.Unauthenticated, "the certificate of this connection has expired: connect with the renewed one")
		case <-rep.server.closing:
			return status.Error(codes.Unavailable, "the hub stops")
		}
	}
}

func (rep *reporter) take(r *hubv1.ReportRequest) error {
	s := rep.server
	if n := proto.Size(r.GetReport()); n > mostReport {
		if r.Report.Revoked = r.Report.Revoked[:min(len(r.Report.Revoked), mostRevoked)]; proto.Size(r.Report) > mostReport {
			return status.Errorf(codes.InvalidArgument, "a report of %d bytes: want at most %d", n, mostReport)
		}
	}
	if r.GetReport() != nil {
		s.holders.reported(rep.spoke, rep.door, r.GetReport(), s.cfg.Now())
	}
	if err := s.used.take(rep.store, r.GetUsed(), s.cfg.Now()); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return nil
}

// tell sends what others have used since the door heard last.
func (rep *reporter) tell() error {
	for {
		totals, told := rep.server.used.elsewhere(rep.store, rep.told, mostTold)
		if len(totals) == 0 {
			rep.told = told
			return nil
		}
		if err := rep.rpc.Send(&hubv1.ReportResponse{Hub: rep.server.used.hub, Elsewhere: totals}); err != nil {
			return err
		}
		rep.told = told
	}
}

const (
	// mostReport is how much of a door is kept, in bytes.
	mostReport = 256 << 10
	// mostRevoked is how many keys that a spoke refuses by itself are kept of a report that is too long.
	mostRevoked = 1000
)

// mostTold is how many totals go into one message: some 80 bytes each.
const mostTold = 8192
