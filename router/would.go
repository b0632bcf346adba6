package router

import "time"

// Would is what Pick would answer now. It books nothing, and remembers nothing of the prompt: the Choice has no Booking.
func (r *Router) Would(now time.Time, ask Ask) (Choice, error) { return r.choose(now, ask, nil) }
