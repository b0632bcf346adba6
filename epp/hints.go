package epp

import (
	"cmp"
	"slices"

	"github.com/spokegate/spokegate/router"
)

// Headers of the ecosystem that a request may bring. Those of fairness (x-gateway-inference-fairness-id and its alias) and of
// targets for latency (x-slo-ttft-ms, x-slo-tpot-ms) are passed on and not read.
const (
	sessionHeader        = "x-session-id"
	objectiveHeader      = "x-gateway-inference-objective"
	objectiveHeaderAlias = "x-llm-d-inference-objective"
)

// hint tells the router what a request says of itself by headers.
func (st *stream) hint(ask *router.Ask) {
	ask.Session = router.SessionOf("", st.headers[sessionHeader]) // of which team it is, nobody says here
	objective := cmp.Or(st.headers[objectiveHeader], st.headers[objectiveHeaderAlias])
	ask.Sheddable = objective != "" && slices.Contains(st.server.Sheddable, objective)
	ask.Subset, ask.OneRank = st.subset, st.server.Flights == nil
}
