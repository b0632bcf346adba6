package follow

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
)

// Reports are what a door tells its hub, and what it hears of others.
type Reports struct {
	// State is what holds now; nil: nothing is told.
	State func() *hubv1.Report
	// Store names where the door counts: see hubv1.Door.
	Store string
	// Used is what quotas have counted there in the current day and month; nil: nothing is.
	Used func(ctx context.Context) ([]*hubv1.Total, error)
	// Elsewhere takes what they have counted at all other stores. hub names one start of the hub.
	Elsewhere func(hub string, totals []*hubv1.Total)
	// Every is how often the hub is told what has changed. Default 1 s.
	Every time.Duration
}

const (
	// stateEvery is how often the state is told though it has not changed.
	stateEvery = 15 * time.Second
	// mostTotals is how many go into one message.
	mostTotals = 8192
)

// Report tells the hub of the door until ctx is done. The connection is that of Run.
func (h *Hub) Report(ctx context.Context) error {
	if h.cfg.Reports.State == nil {
		return nil
	}
	said := ""
	for ctx.Err() == nil {
		err := h.report(ctx)
		if why := status.Convert(err).Message(); ctx.Err() == nil && why != said {
			said = why
			h.cfg.Log.Debug("the hub hears no reports", "err", why)
		}
		select {
		case <-ctx.Done():
		case <-time.After(h.cfg.Retry):
		}
	}
	return nil
}

// reporting is one stream of reports.
type reporting struct {
	*Reports
	open hubv1.Spokes_ReportClient
	told *hubv1.Report
	at   time.Time
	used map[totalKey]int64 // as the hub knows it
}

type totalKey struct {
	limit string
	kind  hubv1.Kind
	start int64
}

func (h *Hub) report(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	open, err := hubv1.NewSpokesClient(h.connection()).Report(ctx)
	if err != nil {
		return err
	}
	r := &reporting{Reports: &h.cfg.Reports, open: open, used: map[totalKey]int64{}}
	ended := make(chan error, 1)
	go func() { ended <- r.hear() }()
	defer func() { cancel(); <-ended }()
	first := &hubv1.ReportRequest{Door: &hubv1.Door{Spoke: h.cfg.Spoke, Name: h.cfg.Door, Store: r.Store}}
	tick := time.NewTicker(cmp.Or(r.Every, time.Second))
	defer tick.Stop()
	for {
		if err := r.tell(ctx, first, h.cfg.Now()); err != nil {
			return err
		}
		first = nil
		select {
		case err := <-ended:
			ended <- err
			return err
		case <-tick.C:
		}
	}
}

// hear takes what the hub says, until the stream ends.
func (r *reporting) hear() error {
	for {
		m, err := r.open.Recv()
		if err != nil {
			return err
		}
		if r.Elsewhere != nil && len(m.GetElsewhere()) > 0 {
			r.Elsewhere(m.GetHub(), m.GetElsewhere())
		}
	}
}

// tell sends what has changed since the hub heard last.
func (r *reporting) tell(ctx context.Context, message *hubv1.ReportRequest, now time.Time) error {
	if message == nil {
		message = &hubv1.ReportRequest{}
	}
	if state := r.State(); now.Sub(r.at) >= stateEvery || !proto.Equal(state, r.told) {
		message.Report, r.told, r.at = state, state, now
	}
	changed, err := r.changed(ctx)
	if err != nil {
		changed = nil // the next time
	}
	for {
		n := min(len(changed), mostTotals)
		message.Used, changed = changed[:n], changed[n:]
		if message.Door == nil && message.Report == nil && n == 0 {
			return nil
		}
		if err := r.open.Send(message); err != nil {
			return err
		}
		message = &hubv1.ReportRequest{}
	}
}

// changed are the totals that the hub does not know. What is over is forgotten.
func (r *reporting) changed(ctx context.Context) (out []*hubv1.Total, err error) {
	if r.Used == nil {
		return nil, nil
	}
	all, err := r.Used(ctx)
	if err != nil {
		return nil, err
	}
	now := make(map[totalKey]int64, len(all))
	for _, t := range all {
		k := totalKey{t.GetLimit(), t.GetKind(), t.GetStart()}
		now[k] = t.GetUsed()
		if before, told := r.used[k]; !told || before != t.GetUsed() {
			out = append(out, t)
		}
	}
	r.used = now
	return out, nil
}
