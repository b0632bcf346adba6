package worker

import (
	"maps"
	"slices"
	"strings"
	"sync"
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
		Reason: at.reason, Running: at.running, Engine: w.cfg.Engine.Kind(), Epoch: at.hello.Epoch, Doors: w.joined.names(),
	}
}

// doorNames are the doors of which a stream lives.
type doorNames struct {
	mu      sync.Mutex
	streams map[string]int // by door
}

func (j *doorNames) add(door string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.streams == nil {
		j.streams = map[string]int{}
	}
	j.streams[door]++
}

func (j *doorNames) remove(door string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.streams[door]--; j.streams[door] == 0 {
		delete(j.streams, door)
	}
}

// names of the doors, sorted.
func (j *doorNames) names() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(maps.Keys(j.streams))
}
