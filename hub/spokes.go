package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spokegate/spokegate/hub/store"
)

// keptReport is a report as it is stored.
type keptReport struct {
	GPUs    []GPU  `json:"gpus,omitempty"`
	Version string `json:"version,omitempty"`
}

// reports are those of all spokes, by name.
func reports(tx *store.Tx) (map[string]SpokeReport, error) {
	list, err := tx.Reports()
	if err != nil {
		return nil, err
	}
	out := map[string]SpokeReport{}
	for _, r := range list {
		var k keptReport
		if err := json.Unmarshal(r.Body, &k); err != nil {
			return nil, fmt.Errorf("the report of spoke %s cannot be read: %w", r.Spoke, err)
		}
		out[r.Spoke] = SpokeReport(k)
	}
	return out, nil
}

// RegisterSpoke makes a spoke that joins by itself known, under its own name as actor; one that is known stays as it is.
func (h *Hub) RegisterSpoke(ctx context.Context, name string, labels map[string]string) error {
	if h.state.Load().hasSpoke(name) {
		return nil
	}
	b := body{}
	if len(labels) > 0 {
		b.set("labels", labels)
	}
	_, err := h.commit(ctx, Commit{Actor: Actor{Name: "spoke/" + name, Role: RoleAdmin}, Message: "spoke " + name + " joins"},
		operation{name: "register", content: name, changes: func(w *work) ([]change, error) {
			if w.state.hasSpoke(name) {
				return nil, nil
			}
			return []change{{Change: Change{Kind: KindSpoke, Name: name, Body: b.raw()}}}, nil
		}})
	return err
}

// maxTypes bounds the types of GPU that one spoke reports.
const maxTypes = 64

// Report keeps what a spoke says of itself. Nothing moves because of it; the next placement goes by it.
func (h *Hub) Report(ctx context.Context, spoke string, r SpokeReport) error {
	if !h.state.Load().hasSpoke(spoke) {
		return fmt.Errorf("%s: %w", path(KindSpoke, spoke), ErrNotFound)
	}
	if len(r.GPUs) > maxTypes || !plainText(r.Version, maxLabel) {
		return invalid("report", "want up to %d types of GPU, and a version of up to %d characters", maxTypes, maxLabel)
	}
	seen := map[string]bool{}
	for _, g := range r.GPUs {
		if g.Type == "" || !plainText(g.Type, 63) || seen[g.Type] || g.Free < 0 || g.Capacity < g.Free || g.Capacity > maxGPUs {
			return invalid("report", "want each type of GPU once, by its name, and 0 ≤ free ≤ capacity ≤ %d", maxGPUs)
		}
		seen[g.Type] = true
	}
	raw, err := json.Marshal(keptReport(r))
	if err != nil {
		return err
	}
	return h.store.Update(ctx, func(tx *store.Tx) error {
		return tx.PutReport(store.Report{Spoke: spoke, Body: raw, At: h.cfg.Now().UnixNano()})
	})
}

// Spokes tells what the spokes have reported, in order of name.
func (h *Hub) Spokes(ctx context.Context, who Actor) ([]SpokeStatus, error) {
	if err := who.seesAll(); err != nil {
		return nil, err
	}
	st := h.state.Load()
	var list []store.Report
	var said map[string]SpokeReport
	err := h.store.View(ctx, func(tx *store.Tx) (err error) {
		if said, err = reports(tx); err != nil {
			return err
		}
		list, err = tx.Reports()
		return err
	})
	if err != nil {
		return nil, err
	}
	at := map[string]time.Time{}
	for _, r := range list {
		at[r.Spoke] = time.Unix(0, r.At).UTC()
	}
	var out []SpokeStatus
	for _, name := range slices.Sorted(maps.Keys(st.spokes)) {
		s := SpokeStatus{Name: name, Labels: st.spokes[name].labels, Report: said[name], At: at[name]}
		for e, part := range st.layout.endpoints {
			if part.spoke == name {
				s.Endpoints = append(s.Endpoints, e)
			}
		}
		slices.Sort(s.Endpoints)
		out = append(out, s)
	}
	return out, nil
}

// Periods are told apart by the length of their names: minutes, days and months of the calendar in UTC.
var periods = map[int]struct {
	form string
	keep time.Duration
}{
	len("2006-01-02T15:04"): {"2006-01-02T15:04", time.Hour},
	len("2006-01-02"):       {"2006-01-02", 3 * 24 * time.Hour},
	len("2006-01"):          {"2006-01", 40 * 24 * time.Hour},
}

// AddSums keeps what teams and keys have used at a spoke. A sum is that of its whole period, so telling it again changes
// nothing, and one that comes late never lowers what is known.
func (h *Hub) AddSums(ctx context.Context, spoke string, sums []Sum) error {
	now := h.cfg.Now()
	list := make([]store.Sum, 0, len(sums))
	for _, s := range sums {
		p, known := periods[len(s.Period)]
		at, err := time.Parse(p.form, s.Period)
		if !known || err != nil {
			return invalid("sums", "%q is no period", strings.ToValidUTF8(s.Period[:min(len(s.Period), 20)], "?"))
		}
		if s.Requests < 0 || s.Tokens < 0 || !plainText(s.Name, 1200) || !plainText(s.Model, 128) {
			return invalid("sums", "want names, and numbers that are not below 0")
		}
		owner := "team"
		if s.Key {
			owner = "key"
		}
		gone := at.Add(p.keep)
		if now.After(gone) {
			continue
		}
		list = append(list, store.Sum{
			Spoke: spoke, Period: s.Period, Owner: owner, Name: s.Name, Model: s.Model, Requests: s.Requests, Tokens: s.Tokens, Gone: gone.UnixNano(),
		})
	}
	return h.store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.ForgetSums(now.UnixNano()); err != nil {
			return err
		}
		return tx.PutSums(list)
	})
}

// Elsewhere is what teams and keys have used at all spokes but one, in the periods that are kept.
func (h *Hub) Elsewhere(ctx context.Context, spoke string) (out []Sum, err error) {
	err = h.store.View(ctx, func(tx *store.Tx) error {
		list, err := tx.SumsElsewhere(spoke, h.cfg.Now().UnixNano())
		for _, s := range list {
			out = append(out, Sum{Period: s.Period, Key: s.Owner == "key", Name: s.Name, Model: s.Model, Requests: s.Requests, Tokens: s.Tokens})
		}
		return err
	})
	return out, err
}
