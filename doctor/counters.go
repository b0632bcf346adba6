package doctor

import "context"

// mostSpool is when a journal nears its bound, in bytes.
const mostSpool = 900 << 20

// checkCounters looks at what processes have counted of troubles since they started.
func checkCounters(ctx context.Context, e *exam) {
	together(e.of("door", "epp", "worker", "hub"), func(p *process) {
		page, err := metrics(ctx, p.ops, "/metrics", "process_max_fds", "process_open_fds", "spokegate_usage_lost_total",
			"spokegate_usage_spool_bytes", "spokegate_limits_fallback")
		if err != nil {
			return // a process that does not answer is found elsewhere
		}
		if most, open := sum(page, "process_max_fds"), sum(page, "process_open_fds"); most > 0 {
			e.say("files-few", p.where(), most < fewFiles || open > 0.8*most, "%.0f of %.0f files are open", open, most)
		}
		if p.is("door", "worker") {
			lost, size := sum(page, "spokegate_usage_lost_total"), sum(page, "spokegate_usage_spool_bytes")
			e.say("usage-lost", p.where(), lost > 0, "since it started %.0f records were lost", lost)
			e.say("spool-full", p.where(), size > mostSpool, "its journal has %.0f MiB", size/(1<<20))
		}
		if len(page["spokegate_limits_fallback"]) > 0 {
			alone := sum(page, "spokegate_limits_fallback") > 0
			e.say("limits-alone", p.where(), alone, "it counts %s", map[bool]string{true: "by itself", false: "in Redis"}[alone])
		}
	})
}
