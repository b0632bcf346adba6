package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spokegate/spokegate/hub/store"
)

// keptReport is a report as it is stored.
type keptReport struct {
	GPUs    []GPU  `json:"gpus,omitempty"`
	Version string `json:"version,omitempty"`
}

// reports are those of all spokes, by name, and when each was made.
func reports(tx *store.Tx) (said map[string]SpokeReport, at map[string]time.Time, err error) {
	list, err := tx.Reports()
	if err != nil {
		return nil, nil, err
	}
	said, at = map[string]SpokeReport{}, map[string]time.Time{}
	for _, r := range list {
		var k keptReport
		if err := json.Unmarshal(r.Body, &k); err != nil {
			return nil, nil, fmt.Errorf("the report of spoke %s cannot be read: %w", r.Spoke, err)
		}
		said[r.Spoke], at[r.Spoke] = SpokeReport(k), timeAt(r.At)
	}
	return said, at, nil
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

// Report keeps what a spoke says of itself; what it has said before it may say again as often as it likes. Nothing moves because
// of it; the next placement goes by it.
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
	if err != nil || !h.reports.news(spoke, string(raw), h.cfg.Now()) {
		return err
	}
	err = h.store.Update(ctx, func(tx *store.Tx) error {
		return tx.PutReport(store.Report{Spoke: spoke, Body: raw, At: h.cfg.Now().UnixNano()})
	})
	if err != nil {
		h.reports.forget(spoke)
	}
	return err
}

// sameReport is how often a report that says what the one before said is stored, so that its time is known; each is a commit to
// the database.
const sameReport = time.Minute

// told is what spokes have reported last. The zero value knows of none.
type told struct {
	mu   sync.Mutex
	last map[string]toldReport
}

type toldReport struct {
	raw string
	at  time.Time
}

// news says whether a report is worth storing, and remembers it.
func (t *told) news(spoke, raw string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if had, ok := t.last[spoke]; ok && had.raw == raw && now.Sub(had.at) < sameReport {
		return false
	}
	if t.last == nil {
		t.last = map[string]toldReport{}
	}
	t.last[spoke] = toldReport{raw, now}
	return true
}

func (t *told) forget(spoke string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, spoke)
}

// Spokes tells what the spokes have reported, in order of name.
func (h *Hub) Spokes(ctx context.Context, who Actor) ([]SpokeStatus, error) {
	if err := who.seesAll(); err != nil {
		return nil, err
	}
	st := h.state.Load()
	var said map[string]SpokeReport
	var at map[string]time.Time
	err := h.store.View(ctx, func(tx *store.Tx) (err error) {
		said, at, err = reports(tx)
		return err
	})
	if err != nil {
		return nil, err
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
