package limits

import (
	"fmt"
	"strings"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// String explains the decision in one line, for logs, scenarios and people:
//
//	admitted: least left is team research, rate: 3 of 10 left, full in 700ms
//	refused by key alice-laptop for sim-large, concurrency: 2 of 2 in use, come back in 1s
//	refused by team research, tokens per minute: 300 of 1000 left, come back in 20s
//	refused by team research, tokens per day: this request alone needs more than 5000
func (d Decision) String() string {
	switch {
	case d.Admitted && d.Binding() == nil:
		return "admitted: no limit applies"
	case d.Admitted:
		return "admitted: least left is " + d.Binding().String()
	case d.Binding() == nil:
		return "refused: not judged"
	}
	return "refused by " + d.Binding().String()
}

// String names the limit and says what is left of it and when to come back.
func (s Standing) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s: ", nameOf(s.Limit), strings.ReplaceAll(s.Kind.String(), "_", " "))
	switch {
	case s.Refuses && s.RetryAfter < 0:
		fmt.Fprintf(&b, "this request alone needs more than %d", s.Max)
		return b.String()
	case s.Refuses && s.Kind == Concurrency:
		fmt.Fprintf(&b, "%d of %d in use", s.Used, s.Max)
	default:
		fmt.Fprintf(&b, "%d of %d left", s.Remaining, s.Max)
	}
	switch {
	case s.Refuses:
		fmt.Fprintf(&b, ", come back in %s", brief(s.RetryAfter))
	case s.Kind != Concurrency && s.Reset > 0:
		fmt.Fprintf(&b, ", full in %s", brief(s.Reset))
	}
	return b.String()
}

func nameOf(l policy.Limit) string {
	name := l.Level.String()
	if l.Owner != "" {
		name += " " + l.Owner
	}
	if l.Model != "" && l.Model != l.Owner {
		name += " for " + l.Model
	}
	return name
}

// brief rounds up to a millisecond, what is longer than a minute to a second, and what is longer than a day to a minute, so that
// coming back after the time shown is never too early.
func brief(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= time.Minute:
		return roundUp(d, time.Millisecond).String()
	case d <= day:
		return roundUp(d, time.Second).String()
	}
	d = roundUp(d, time.Minute)
	return fmt.Sprintf("%dd%dh%dm", d/day, d%day/time.Hour, d%time.Hour/time.Minute)
}

func roundUp(d, to time.Duration) time.Duration {
	if r := d.Truncate(to); r < d {
		return r + to
	}
	return d
}
