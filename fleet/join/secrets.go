package join

import (
	"sync"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity"
)

// secrets are what the door shares with its workers, by address. They are kept here alone: not in the fleet, which is shown.
type secrets struct {
	mu sync.RWMutex
	of map[string]identity.Secret
}

// Secret is what the door shares with the worker at an address, which knows it by now. False: nothing.
func (s *Server) Secret(addr string) (identity.Secret, bool) {
	s.secrets.mu.RLock()
	defer s.secrets.mu.RUnlock()
	secret, ok := s.secrets.of[addr]
	return secret, ok
}

// shared is the secret of one stream; nil: it has none.
type shared struct {
	in     *secrets
	addr   string
	secret identity.Secret
}

// share makes a secret for a worker's stream, if both sides want one. Secret does not find it yet.
func (s *Server) share(h *workerv1.Hello, w *fleet.Worker) *shared {
	if !s.Macs || !h.Macs {
		return nil
	}
	return &shared{&s.secrets, w.Addr, identity.NewSecret()}
}

// message is what the worker is told.
func (s *shared) message() *workerv1.Secret {
	if s == nil {
		return nil
	}
	return &workerv1.Secret{Id: s.secret.ID(), Secret: s.secret.Key()}
}

// known lets Secret find it, for the worker has taken it in.
func (s *shared) known() {
	if s == nil {
		return
	}
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if s.in.of == nil {
		s.in.of = map[string]identity.Secret{}
	}
	s.in.of[s.addr] = s.secret
}

// forget takes it away, and none that came after it.
func (s *shared) forget() {
	if s == nil {
		return
	}
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if s.in.of[s.addr] == s.secret {
		delete(s.in.of, s.addr)
	}
}
