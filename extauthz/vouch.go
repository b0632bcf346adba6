package extauthz

import (
	"time"

	"github.com/spokegate/spokegate/identity"
)

// vouch makes the context for the workers that the request may go to. It is by MAC where the door shares a secret with each of
// them: that costs a hundredth of a signature, here and at the worker. Else it is signed, and good at any worker.
func (s *Server) vouch(c identity.Context, now time.Time, workers []string) string {
	var space [identity.MaxSecrets]identity.Secret
	if to := s.secrets(space[:0], workers); len(to) > 0 {
		s.metrics.byMac.Inc()
		return s.Minter.MintFor(c, now, to)
	}
	s.metrics.bySignature.Inc()
	return s.Minter.Mint(c, now)
}

// secrets appends what is shared with all of the workers; nothing if that is not so, or if they are too many.
func (s *Server) secrets(to []identity.Secret, workers []string) []identity.Secret {
	if s.Secrets == nil || len(workers) > identity.MaxSecrets {
		return nil
	}
	for _, addr := range workers {
		secret, ok := s.Secrets(addr)
		if !ok {
			return nil
		}
		to = append(to, secret)
	}
	return to
}
