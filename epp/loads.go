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
		if said := w.Status(); r != nil && said.Load != nil {
			r.Reported(w.Addr, 0, reportOf(said))
		}
	}
}

func reportOf(s fleet.Status) router.Report {
	return router.Report{At: s.At, Running: int(s.Load.Running), Waiting: int(s.Load.Waiting), CacheUsed: float64(s.Load.CacheUsedPermille) / 1000}
}
