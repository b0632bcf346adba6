package worker

import (
	"maps"
	"slices"
	"sync"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// Status is what a worker says of itself.
type Status struct {
	State   string // starting, ready, failed, draining, stopped
	Reason  string // of a failure; of a start: how far it is
	Running uint32 // requests in the shim
	// Degraded is what makes it worse than it seems, each "CAUSE: DETAIL".
	Degraded []string
	Load     *workerv1.Load // of the engine; nil: it says nothing
	Engine   string         // its kind
	Epoch    string         // of the engine's present run
	Doors    []string
}

// Status is how it stands now. Doors are those that it is joined to, by name.
func (w *Worker) Status() Status {
	at, _ := w.states.now()
	return Status{
		State:  nameOf(at.state),
		Reason: at.reason, Running: at.running, Degraded: at.causes, Load: at.load, Engine: w.cfg.Engine.Kind(), Epoch: at.hello.Epoch, Doors: w.joined.names(),
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
