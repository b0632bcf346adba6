// Package fleet is the set of a spoke's workers and their states, read by the picker (whom may I choose?) and by the
// door's Envoy configuration (which endpoints are there?).
//
// It promises that a worker can be picked only while it is ready and Envoy has acknowledged it (where nobody tells what the
// gateway knows, see NewUnacknowledged, while it is ready), that reading never waits for
// writing, and that a view never changes once it is handed out, but for what Worker.Status tells. It does not find workers
// (see fleet/join), does not watch their health, and keeps nothing on disk: workers join again after a restart.
package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// MaxWorkers bounds a fleet, so that a broken shim which joins under ever new names cannot exhaust the door.
const MaxWorkers = 4096

// View is the fleet at one moment. Its version grows when a worker comes, goes, or changes its state.
type View struct {
	Version uint64
	Workers []Worker // sorted by name
}

// Fleet is safe for concurrent use.
type Fleet struct {
	read  atomic.Pointer[reading] // what readers see; replaced whole
	blind bool                    // nobody tells what the gateway knows

	mu      sync.Mutex // guards all below
	version uint64
	acked   map[string]uint64 // endpoint → version at which Envoy has its workers
	members map[string]*member
	sorted  []*member         // by name: a change must not sort thousands
	addrs   map[string]string // address → name
	changed chan struct{}
}

// member is a worker and the version at which it last became ready.
type member struct {
	Worker
	ready uint64
}

// reading is all that readers need, derived once at each change.
type reading struct {
	view     *View
	pickable map[string][]Worker // by endpoint, sorted by name
}

// NewUnacknowledged is for a picker behind a gateway that does not tell which workers it knows: what is ready can be picked. The
// gateway passes over what it is named and does not know.
func NewUnacknowledged() *Fleet {
	f := New()
	f.blind = true
	return f
}

func New() *Fleet {
	f := &Fleet{members: map[string]*member{}, addrs: map[string]string{}, changed: make(chan struct{})}
	f.read.Store(&reading{view: &View{}})
	return f
}

// Join adds w, in the state that it has. The name and the address must not be those of a worker that is here:
// ErrDuplicate, ErrInvalid or ErrFull. leave takes it out again and can be called more than once.
func (f *Fleet) Join(w Worker) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.join(w)
	if err != nil {
		return nil, err
	}
	f.change()
	return func() { f.leave(m) }, nil
}

// Trial tells what Join would say to workers that came into an empty fleet one after another, of all of them at the cost of one.
type Trial struct{ fleet *Fleet }

// NewTrial begins with nobody.
func NewTrial() Trial { return Trial{New()} }

// Join is Fleet's.
func (t Trial) Join(w Worker) error {
	_, err := t.fleet.join(w)
	return err
}

func (f *Fleet) join(w Worker) (*member, error) {
	w, err := valid(w)
	if err != nil {
		return nil, err
	}
	if w.Joined.IsZero() {
		w.Joined = time.Now()
	}
	w.told = new(atomic.Pointer[Status])
	if _, taken := f.members[w.Name]; taken {
		return nil, fmt.Errorf("name %s: %w", w.Name, ErrDuplicate)
	}
	if other, taken := f.addrs[w.Addr]; taken {
		return nil, fmt.Errorf("address %s of %s: %w", w.Addr, other, ErrDuplicate)
	}
	if len(f.members) >= MaxWorkers {
		return nil, ErrFull
	}
	m := &member{Worker: w, ready: f.version + 1}
	f.members[w.Name], f.addrs[w.Addr] = m, w.Name
	at, _ := f.place(w.Name)
	f.sorted = slices.Insert(f.sorted, at, m)
	return m, nil
}

// place is where a name is among those sorted, or would be.
func (f *Fleet) place(name string) (int, bool) {
	return slices.BinarySearchFunc(f.sorted, name, func(m *member, name string) int { return strings.Compare(m.Name, name) })
}

// leave compares the member, so that a late call cannot remove a successor of the same name.
func (f *Fleet) leave(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members[m.Name] != m {
		return
	}
	delete(f.members, m.Name)
	delete(f.addrs, m.Addr)
	at, _ := f.place(m.Name)
	f.sorted = slices.Delete(f.sorted, at, at+1)
	f.change()
}

// Update records the state that a worker says it is in, and tells whether that is another than before. An unknown name is
// ignored: it has left.
func (f *Fleet) Update(name string, s State) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[name]
	if m == nil || m.State == s {
		return false
	}
	m.State, m.ready = s, f.version+1
	f.change()
	return true
}

// Renew records that the engine of a worker began anew, as another run, with an empty cache, and what is known of its blocks. An
// unknown name is ignored.
func (f *Fleet) Renew(name, epoch string, blockSize uint32, blocks uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[name]
	if m == nil || m.Epoch == epoch && m.BlockSize == blockSize && m.Blocks == blocks {
		return
	}
	m.Epoch, m.BlockSize, m.Blocks = epoch, blockSize, blocks
	f.change()
}

// Report keeps what a worker said with a beat: its Status. It makes no new view, for it comes each second from each worker.
func (f *Fleet) Report(name string, s Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[name]; m != nil {
		m.told.Store(&s)
	}
}

// Acked says which endpoints Envoy has, each with the workers of the view with that version. The fleet keeps the map.
func (f *Fleet) Acked(endpoints map[string]uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if maps.Equal(f.acked, endpoints) {
		return
	}
	f.acked = endpoints
	f.publish()
}

// View is the fleet now.
func (f *Fleet) View() *View { return f.read.Load().view }

// Changed is closed at the next change of the view's version or of what can be picked. Take the channel first, then the
// view, so that no change is missed.
func (f *Fleet) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// Pickable lists the workers of an endpoint that are ready and that Envoy has acknowledged, sorted by name. The caller
// must not change the slice.
func (f *Fleet) Pickable(endpoint string) []Worker { return f.read.Load().pickable[endpoint] }

// change publishes the members as a new version.
func (f *Fleet) change() {
	f.version++
	f.publish()
}

func (f *Fleet) publish() {
	f.read.Store(f.reading())
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *Fleet) reading() *reading {
	r := &reading{view: &View{Version: f.version, Workers: slices.Grow([]Worker(nil), len(f.sorted))}, pickable: map[string][]Worker{}}
	count := map[string]int{}
	for _, m := range f.sorted {
		r.view.Workers = append(r.view.Workers, m.Worker)
		if f.pickable(m) {
			count[m.Endpoint]++
		}
	}
	for _, m := range f.sorted {
		if !f.pickable(m) {
			continue
		}
		list := r.pickable[m.Endpoint]
		if list == nil {
			list = make([]Worker, 0, count[m.Endpoint])
		}
		r.pickable[m.Endpoint] = append(list, m.Worker)
	}
	return r
}

func (f *Fleet) pickable(m *member) bool {
	return m.State == Ready && (f.blind || m.ready <= f.acked[m.Endpoint])
}
