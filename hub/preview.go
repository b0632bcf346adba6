package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/spokegate/spokegate/hub/store"
)

// errPreview takes back what a preview has read with the writer's eyes.
var errPreview = errors.New("only a preview")

// PreviewImport says what an import would change, checked as the import itself would be, and changes nothing.
func (h *Hub) PreviewImport(ctx context.Context, c Commit, i Import) (Diff, error) {
	op, err := importing(c, i)
	if err != nil {
		return Diff{}, err
	}
	if err := c.check(); err != nil {
		return Diff{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var d Diff
	err = h.store.Update(ctx, func(tx *store.Tx) error {
		if err := h.catchUp(tx); err != nil {
			return err
		}
		w := &work{outcome: &outcome{}, hub: h, tx: tx, state: h.state.Load(), by: c, now: h.cfg.Now().UTC()}
		if d, err = w.preview(op); err != nil {
			return err
		}
		return errPreview
	})
	if errors.Is(err, errPreview) {
		err = nil
	}
	return d, err
}

// preview makes the next state, and throws it away.
func (w *work) preview(op operation) (Diff, error) {
	d := Diff{From: w.state.head.Number, To: w.state.head.Number}
	list, err := op.changes(w)
	if err != nil {
		return d, err
	}
	planned, err := w.plan(list)
	if err != nil || len(planned) == 0 {
		return d, err
	}
	d.To++
	all := make([]changed, len(planned))
	for i, p := range planned {
		all[i] = p.changed
		d.Changes = append(d.Changes, Difference{p.kind, p.name, json.RawMessage(p.had.Body), p.new.raw})
	}
	slices.SortFunc(d.Changes, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(slices.Index(Kinds, a.Kind), slices.Index(Kinds, b.Kind)), cmp.Compare(a.Name, b.Name))
	})
	next, err := w.state.next(Revision{Number: d.To, At: w.now}, all)
	if err != nil {
		return d, err
	}
	return d, w.whole(next, planned)
}
