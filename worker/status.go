package worker

import (
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
	Doors    []string       // that it is joined to, by name
	Away     []string       // targets of those that it is not joined to, each with the reason, "TARGET: WHY", once it was tried
	// Settled: it has been joined to every door that it could reach at its start, those of names included.
	Settled bool
}

// Status is how it stands now.
func (w *Worker) Status() Status {
	at, _ := w.states.now()
	names, away, settled := w.doors.now()
	return Status{
		State:  nameOf(at.state),
		Reason: at.reason, Running: at.running, Degraded: at.causes, Load: at.load, Engine: w.cfg.Engine.Kind(), Epoch: at.hello.Epoch, Doors: names, Away: away, Settled: settled,
	}
}

// doors are those that a worker is to join.
type doors struct {
	mu      sync.Mutex
	known   map[string]*knownDoor // by target
	settled bool
}

type knownDoor struct {
	name  string // of the door, while a stream lives
	tried bool   // and it was not reached, or refused
	why   string
}

// know adds a door until forget is called.
func (d *doors) know(target string) (forget func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = map[string]*knownDoor{}
	}
	d.known[target] = &knownDoor{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.known, target)
		d.settle() // it may have been the only one still waited for
	}
}

func (d *doors) joined(target, name string) {
	d.change(target, func(k *knownDoor) { k.name, k.why = name, "" })
}
func (d *doors) left(target string) { d.change(target, func(k *knownDoor) { k.name = "" }) }
func (d *doors) tried(target, why string) {
	d.change(target, func(k *knownDoor) { k.tried, k.why = true, why })
}

func (d *doors) change(target string, f func(*knownDoor)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k := d.known[target]; k != nil {
		f(k)
		d.settle()
	}
}

// settle notes when the worker is joined to every door that can be reached. Later ones do not make it less ready.
func (d *doors) settle() {
	any := false
	for _, k := range d.known {
		if k.name == "" && !k.tried {
			return
		}
		any = any || k.name != ""
	}
	d.settled = d.settled || any
}

// now are the names of the doors that are joined, and the targets of those that are not, both sorted.
func (d *doors) now() (names, away []string, settled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for target, k := range d.known {
		switch {
		case k.name != "":
			names = append(names, k.name)
		case k.why != "":
			away = append(away, target+": "+k.why)
		default:
			away = append(away, target)
		}
	}
	slices.Sort(names)
	slices.Sort(away)
	return slices.Compact(names), away, d.settled
}
