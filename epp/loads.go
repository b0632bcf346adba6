package epp

import (
	"time"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/router"
)

// loadsEvery is how often what workers say of their load is passed on: they say it each second.
const loadsEvery = time.Second

// reportLoads tells the routers what workers say of themselves. One that says nothing is taken at what is booked on it.
func (p *Picker) reportLoads() {
	for _, w := range p.Fleet.View().Workers {
		r := p.router(w.Endpoint)
		if r == nil {
			continue
		}
		switch said := w.Status(); {
		case w.Ranks > 1: // where they are not told apart, nobody knows which has how much
			for rank, l := range said.Ranks {
				r.Reported(w.Addr, rank, reportOf(said.At, l))
			}
		case said.Load != nil:
			r.Reported(w.Addr, 0, reportOf(said.At, *said.Load))
		}
	}
}

func reportOf(at time.Time, l fleet.Load) router.Report {
	return router.Report{At: at, Running: int(l.Running), Waiting: int(l.Waiting), CacheUsed: float64(l.CacheUsedPermille) / 1000}
}

// workersOf are workers as routers know them. The blocks of a device are told of all ranks together.
func workersOf(list []fleet.Worker) []router.Worker {
	ws := make([]router.Worker, len(list))
	for i, w := range list {
		ws[i] = router.Worker{
			Addr: w.Addr, Ranks: int(w.Ranks), Role: w.Role, Blocks: int(w.Blocks / uint64(max(w.Ranks, 1))), BlockTokens: int(w.BlockSize),
		}
	}
	return ws
}
