package extauthz

import (
	"time"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/router"
)

// prefillLeg signs the context for the worker that is to compute the prompt, if there is one. It is the main one in all else, the
// body too: the worker that answers sends the client's own request on.
func (s *Server) prefillLeg(choice router.Choice, main identity.Context, now time.Time) string {
	if choice.Prefill == "" {
		return ""
	}
	main.Leg, main.Worker = identity.LegPrefill, choice.Prefill
	return s.Minter.Mint(main, now)
}
