package worker

import (
	"slices"
	"strings"
)

// Status is what a worker says of itself.
type Status struct {
	State   string // starting, ready, failed, draining, stopped
	Reason  string // of a failure
	Running uint32 // requests in the shim
	Engine  string // its kind
	Epoch   string // of the engine's present run
	Doors   []string
}

// Status is how it stands now. Doors are those that it is joined to, by name.
func (w *Worker) Status() Status {
	at, _ := w.states.now()
	return Status{
		State:  strings.ToLower(strings.TrimPrefix(at.state.String(), "STATE_")),
		Reason: at.reason, Running: at.running, Engine: w.cfg.Engine.Kind(), Epoch: at.hello.Epoch, Doors: w.keys.joined(),
	}
}

// joined names the doors of which a stream lives.
func (k *keys) joined() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for door, h := range k.held {
		if h.streams > 0 {
			names = append(names, door)
		}
	}
	slices.Sort(names)
	return names
}
