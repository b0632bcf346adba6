package join

import (
	"sync"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/identity"
)

// queueMost is how many cancels may wait for one shim. A slow one holds up nobody: what does not fit is not sent to it.
const queueMost = 8192

// outbox holds what is to be sent to one shim.
type outbox struct {
	most  int
	mu    sync.Mutex
	queue []*workerv1.JoinResponse
	ready chan struct{} // has one element while there is something to take
}

func newOutbox(most int) *outbox { return &outbox{most: most, ready: make(chan struct{}, 1)} }

// put never blocks; false: there is no room.
func (o *outbox) put(m *workerv1.JoinResponse) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == o.most {
		return false
	}
	o.queue = append(o.queue, m)
	select {
	case o.ready <- struct{}{}:
	default:
	}
	return true
}

func (o *outbox) take() []*workerv1.JoinResponse {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.queue
	o.queue = nil
	return list
}

// tell is the one sender of a stream: a Welcome first and at each change of what it says, and what the outbox has. Its
// goroutine ends with the stream, which gRPC ends when Join returns; whoever receives sees why.
func (s *Server) tell(stream workerv1.Fleet_JoinServer, o *outbox, mac *shared) {
	for {
		welcome, rekeyed, reseeded := s.welcome(mac)
		if stream.Send(welcome) != nil {
			return
		}
		for current := true; current; {
			select {
			case <-rekeyed:
				current = false
			case <-reseeded:
				current = false
			case <-o.ready:
				for _, m := range o.take() {
					if stream.Send(m) != nil {
						return
					}
				}
			case <-stream.Context().Done():
				return
			}
		}
	}
}

// welcome is all that a shim must know of the door now, and when that changes.
func (s *Server) welcome(mac *shared) (m *workerv1.JoinResponse, rekeyed, reseeded <-chan struct{}) {
	w := &workerv1.Welcome{Door: s.Door, BeatMs: uint32(s.beat().Milliseconds()), Begun: s.Began != nil, Mac: mac.message()}
	if s.Seed != nil {
		w.HashSeed, reseeded = s.Seed()
	}
	if s.Keys != nil {
		var keys []identity.DoorKey
		keys, rekeyed = s.Keys()
		for _, k := range keys {
			w.Keys = append(w.Keys, &workerv1.Key{Id: k.ID, PublicKey: k.Public})
		}
	}
	return &workerv1.JoinResponse{Message: &workerv1.JoinResponse_Welcome{Welcome: w}}, rekeyed, reseeded
}

// Cancel tells every shim of an endpoint to end a request, and returns how many it will be sent to. It does not wait for
// them. reason is a word, such as "revoked".
func (s *Server) Cancel(endpoint, admission, reason string) (told int) {
	m := &workerv1.JoinResponse{Message: &workerv1.JoinResponse_Cancel{
		Cancel: &workerv1.Cancel{Admission: admission, Reason: reason}}}
	s.mu.Lock()
	defer s.mu.Unlock()
	for o := range s.shims[endpoint] {
		if o.put(m) {
			told++
		}
	}
	return told
}

// register lets Cancel find a shim, until forget is called.
func (s *Server) register(endpoint string, o *outbox) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shims == nil {
		s.shims = map[string]map[*outbox]struct{}{}
	}
	if s.shims[endpoint] == nil {
		s.shims[endpoint] = map[*outbox]struct{}{}
	}
	s.shims[endpoint][o] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.shims[endpoint], o); len(s.shims[endpoint]) == 0 {
			delete(s.shims, endpoint)
		}
	}
}
