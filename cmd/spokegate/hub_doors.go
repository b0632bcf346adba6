package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
	"github.com/spokegate/spokegate/hub"
	"github.com/spokegate/spokegate/hub/api"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/push"
)

// intakeEvery is how often the hub looks at what doors have reported.
const intakeEvery = time.Second

// intake makes spokes known that have joined by themselves, and keeps what they report of their GPUs.
func intake(ctx context.Context, h *hub.Hub, p *push.Server, log *slog.Logger) error {
	last, said := map[string]time.Time{}, ""
	told := map[string]uint64{} // of doors that are ahead: what they hold
	for pause(ctx, intakeEvery) {
		tellAhead(p.Holders(), told, log)
		for _, d := range speakers(p.Holders()) {
			err := h.RegisterSpoke(ctx, d.Spoke, d.Report.GetLabels())
			if err == nil && d.ReportedAt.After(last[d.Spoke]) { // what is as before, the hub knows
				if err = h.Report(ctx, d.Spoke, hub.SpokeReport{GPUs: gpusOf(d.Report), Version: d.Report.GetVersion()}); err == nil {
					last[d.Spoke] = d.ReportedAt
				}
			}
			if err != nil && ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				log.Warn("what a door reports is not taken", "spoke", d.Spoke, "door", d.Door, "err", said)
			}
		}
	}
	return nil
}

// tellAhead logs once of each door that it holds a later revision than the hub has.
func tellAhead(doors []push.Holder, told map[string]uint64, log *slog.Logger) {
	for _, d := range doors {
		door := d.Spoke + "/" + d.Door
		switch {
		case !d.Ahead():
			delete(told, door)
		case told[door] != d.Says:
			told[door] = d.Says
			log.Error("a door "+ahead(&d), "door", door, "holds", d.Says, "offered", d.NackRevision)
		}
	}
}

// ahead says what it means that a door holds a later revision.
func ahead(d *push.Holder) string {
	return fmt.Sprintf("holds revision %d and takes nothing from here, not even a key that is revoked, while the latest here is %d: "+
		"this hub's database is an old copy. See Restore in docs/hub.md, and -continue-above", d.Says, d.NackRevision)
}

// speakers are one door of each spoke: the first that is connected and says something of its GPUs, else the first.
func speakers(doors []push.Holder) (list []push.Holder) {
	for _, d := range doors { // in order of spoke and door
		switch i := len(list) - 1; {
		case !d.Connected:
		case i < 0 || list[i].Spoke != d.Spoke:
			list = append(list, d)
		case len(list[i].Report.GetGpus()) == 0 && len(d.Report.GetGpus()) > 0:
			list[i] = d
		}
	}
	return list
}

func gpusOf(r *hubv1.Report) (list []hub.GPU) {
	for _, g := range r.GetGpus() {
		list = append(list, hub.GPU{Type: g.GetType(), Capacity: int(g.GetCapacity()), Free: int(g.GetFree())})
	}
	return list
}

// replicas are doors as the API tells of them.
func replicas(holders []push.Holder) []api.Replica {
	list := make([]api.Replica, 0, len(holders))
	for _, d := range holders {
		r := api.Replica{Spoke: d.Spoke, Door: d.Door, Connected: d.Connected, Since: d.Since.UTC(), Revision: cmp.Or(d.Revision, d.Says), Ahead: d.Ahead(),
			HeldSince: unlessZero(d.HeldSince), Refused: d.NackRevision, Reason: d.Nack, Reported: unlessZero(d.ReportedAt)}
		reported(&r, d.Report)
		list = append(list, r)
	}
	return list
}

// reported adds what the door says of itself.
func reported(r *api.Replica, said *hubv1.Report) {
	r.FromDisk, r.Version, r.Limits, r.LimitsLocal = said.GetFromDisk(), said.GetVersion(), said.GetLimits(), said.GetLimitsFallback()
	r.Problems = append(r.Problems, said.GetDegraded()...)
	for _, s := range said.GetSpools() {
		r.SpoolBytes += s.GetBytes()
		r.SpoolLost += s.GetLost()
		if s.GetProblem() != "" {
			r.Problems = append(r.Problems, "spool "+s.GetName()+": "+s.GetProblem())
		}
	}
	for _, w := range said.GetWorkers() {
		r.Workers += w.GetCount()
		if w.GetState() == "ready" {
			r.WorkersReady += w.GetCount()
		}
	}
	for _, x := range said.GetRevoked() {
		r.Revoked = append(r.Revoked, x.GetKey())
	}
}

func unlessZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// quotas are the words of the API for what counts.
var quotas = map[hubv1.Kind]string{
	hubv1.Kind_KIND_REQUESTS_PER_DAY: "requests_per_day", hubv1.Kind_KIND_TOKENS_PER_DAY: "tokens_per_day",
	hubv1.Kind_KIND_REQUESTS_PER_MONTH: "requests_per_month", hubv1.Kind_KIND_TOKENS_PER_MONTH: "tokens_per_month",
}

// usedOf is what quotas have counted, as the API tells of it.
func usedOf(p *push.Server) func(wanted func(level, owner string) bool) []api.Use {
	return func(wanted func(level, owner string) bool) (list []api.Use) {
		totals := p.Used(func(limit string) bool {
			level, owner, _, ok := policy.ParseCounter(limit)
			return ok && wanted(level, owner)
		})
		for _, t := range totals {
			level, owner, model, _ := policy.ParseCounter(t.GetLimit())
			list = append(list, api.Use{Level: level, Owner: owner, Model: model, Kind: quotas[t.GetKind()], Start: time.Unix(t.GetStart(), 0).UTC(), Used: t.GetUsed()})
		}
		return list
	}
}
