package hub

import (
	"bytes"
	"encoding/json"

	"github.com/spokegate/spokegate/hub/store"
)

// answer is an outcome as an idempotency key keeps it.
type answer struct {
	Revision uint64 `json:"revision"`
	Name     string `json:"name,omitempty"`
	Old      string `json:"old,omitempty"`
}

// answered says whether the commit was answered before, and puts that answer into the outcome.
func (w *work) answered(content []byte) (bool, error) {
	if w.by.IdempotencyKey == "" {
		return false, nil
	}
	had, ok, err := w.tx.Answer(w.by.Actor.Name, w.by.IdempotencyKey)
	if !ok || err != nil || had.At < w.now.Add(-2*KeepAnswers).UnixNano() {
		return false, err
	}
	if !bytes.Equal(had.Content, content) {
		return false, &Conflict{Reason: "this idempotency key was used for something else: use another"}
	}
	var a answer
	if err := json.Unmarshal(had.Answer, &a); err != nil {
		return false, err
	}
	r, _, err := w.tx.Revision(a.Revision)
	w.revision, w.name, w.old, w.repeated = revisionOf(r), a.Name, a.Old, true
	return true, err
}

func (w *work) keepAnswer(content []byte) error {
	if w.by.IdempotencyKey == "" {
		return nil
	}
	a, err := json.Marshal(answer{w.revision.Number, w.name, w.old})
	if err != nil {
		return err
	}
	return w.tx.AddAnswer(w.by.Actor.Name, w.by.IdempotencyKey, store.Answer{Content: content, Answer: a, At: w.now.UnixNano()},
		w.now.Add(-2*KeepAnswers).UnixNano())
}
