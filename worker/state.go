package worker

import (
	"slices"
	"sync"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// phase is what the shim itself wants; the engine's life is shown only while it is serving.
type phase uint8

const (
	serving phase = iota
	leaving       // doors are told that it drains; what they had sent before they heard of it is still let in
	draining
	stopped
)

// standing is what the worker says of itself.
type standing struct {
	state   workerv1.State
	reason  string
	running uint32
	hello   Description
	causes  []string         // what makes it worse than it seems, sorted; not to be changed
	load    *workerv1.Load   // of the engine; nil: it says nothing
	ranks   []*workerv1.Load // of its ranks; nil: it has one, or does not tell them apart
}

// states is the one place where engine, drain and requests in flight meet.
type states struct {
	mu      sync.Mutex
	engine  Life
	phase   phase
	running int
	entered uint64 // requests that were let in, ever
	causes  []string
	load    *workerv1.Load
	ranks   []*workerv1.Load
	changed chan struct{} // closed at the next change of state
	idle    chan struct{} // closed when nothing runs and nothing will; nil until drain
}

func newStates() *states {
	return &states{engine: Life{State: workerv1.State_STATE_STARTING}, changed: make(chan struct{})}
}

// now is the present standing, and a channel that is closed when it is so no more (running aside).
func (s *states) now() (standing, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standing(), s.changed
}

func (s *states) standing() standing {
	at := standing{s.engine.State, s.engine.Reason, uint32(s.running), s.engine.Description, s.causes, s.load, s.ranks}
	switch s.phase {
	case leaving, draining:
		at.state, at.reason = workerv1.State_STATE_DRAINING, ""
	case stopped:
		at.state, at.reason = workerv1.State_STATE_STOPPED, ""
	}
	return at
}

func (s *states) count() uint32 {
	at, _ := s.now()
	return at.running
}

// tell takes the engine's word.
func (s *states) tell(l Life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine = l
	s.announce()
}

// observe takes what is known beside the state. A load is told with the next beat.
func (s *states) observe(causes []string, load *workerv1.Load, ranks []*workerv1.Load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := !slices.Equal(s.causes, causes)
	s.causes, s.load, s.ranks = causes, load, ranks
	if changed {
		s.announce()
	}
}

// epoch of the engine's present run.
func (s *states) epoch() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine.Epoch
}

// rest tells how many requests were let in until now, and whether none of them runs.
func (s *states) rest() (entered uint64, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entered, s.running == 0
}

// atRest does something while nobody can enter, if nothing runs and nothing has come since entered was so.
func (s *states) atRest(entered uint64, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == 0 && s.entered == entered {
		do()
	}
}

func (s *states) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// enter lets one request in. Otherwise leave is nil and the standing says why.
func (s *states) enter() (leave func(), at standing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at = s.standing()
	if s.phase > leaving || s.engine.State != workerv1.State_STATE_READY {
		return nil, at
	}
	s.running++
	s.entered++
	return s.leave, at
}

func (s *states) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.checkIdle()
}

// leaveDoors has doors send nobody any more.
func (s *states) leaveDoors() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = leaving
	s.announce()
}

// drain lets nobody in any more. The channel is closed when the last request has left.
func (s *states) drain() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.idle = draining, make(chan struct{})
	s.checkIdle()
	s.announce()
	return s.idle
}

func (s *states) checkIdle() {
	if s.running == 0 && s.idle != nil {
		select {
		case <-s.idle:
		default:
			close(s.idle)
		}
	}
}

func (s *states) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = stopped
	s.announce()
}
