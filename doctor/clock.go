package doctor

import (
	"context"
	"time"
)

// Contexts of doors take 5 s of skew, and live for a minute.
const (
	skewWarned = 2 * time.Second
	skewFault  = 5 * time.Second
)

// checkClocks holds each process's clock against this machine's.
func checkClocks(_ context.Context, e *exam) {
	for _, p := range e.of("door", "epp", "worker", "hub") {
		e.clock(p.where(), p.ahead, p.trip)
	}
}

// clock judges how far a clock is off, which is known to within half of the question's time.
func (e *exam) clock(where string, ahead, trip time.Duration) {
	off := max(ahead.Abs()-trip/2, 0)
	id := "clock-skew"
	if off > skewFault {
		id = "clock-wrong"
	}
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	e.say(id, where, off > skewWarned, "its clock is %v %s this machine's, to within %v", ahead.Abs().Round(time.Millisecond), direction, (trip / 2).Round(time.Millisecond))
}
