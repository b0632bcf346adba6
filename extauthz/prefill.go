package extauthz

import (
	"strconv"
	"strings"
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

// ranksOf tells which data-parallel rank is to serve at each worker that was named; empty: none has several.
func ranksOf(c router.Choice) string {
	var list []string
	add := func(addr string, rank int) {
		if rank >= 0 {
			list = append(list, addr+"="+strconv.Itoa(rank))
		}
	}
	for i, rank := range c.Ranks {
		add(c.Addrs[i], rank)
	}
	if c.Prefill != "" {
		add(c.Prefill, c.PrefillRank)
	}
	return strings.Join(list, ",")
}
