package limits

import (
	"time"

	"github.com/spokegate/spokegate/policy"
)

// Span is the length of a period. Periods are those of the calendar, in UTC: months have their real lengths.
type Span uint8

// The spans, also the places in Fact.Periods.
const (
	Minute Span = iota
	Day
	Month

	spans = 3
)

// Bounds gives when the period began that holds now, and when the next one begins, in Unix seconds.
func (s Span) Bounds(now time.Time) (start, end int64) {
	length := int64(60)
	switch s {
	case Month:
		y, m, _ := now.UTC().Date()
		return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC).Unix()
	case Day:
		length = 24 * 60 * 60
	}
	start = now.Unix()
	start -= (start%length + length) % length
	return start, start + length
}

// span is the period that a quota is for.
func (k Kind) span() Span {
	switch k {
	case RequestsPerDay, TokensPerDay:
		return Day
	case RequestsPerMonth, TokensPerMonth:
		return Month
	}
	return Minute
}

// ofTokens says that the kind counts tokens.
func (k Kind) ofTokens() bool {
	return k == TokensPerMinute || k == TokensPerDay || k == TokensPerMonth
}

// quotaOf gives what a limit allows of a kind of quota; 0: it has none.
func quotaOf(l *policy.Limit, k Kind) int64 {
	switch k {
	case TokensPerMinute:
		return l.TokensPerMinute
	case RequestsPerDay:
		return l.RequestsPerDay
	case TokensPerDay:
		return l.TokensPerDay
	case RequestsPerMonth:
		return l.RequestsPerMonth
	case TokensPerMonth:
		return l.TokensPerMonth
	}
	return 0
}

// hasQuota says whether a limit has a quota of any kind. Then each of its requests counts in all three periods, so that a
// quota of another kind that is added later knows what was used, and a hold needs no list of kinds.
func hasQuota(l *policy.Limit) bool {
	return l.TokensPerMinute > 0 || l.RequestsPerDay > 0 || l.TokensPerDay > 0 || l.RequestsPerMonth > 0 || l.TokensPerMonth > 0
}

// maxCount caps a count, so that it can neither overflow nor leave what a store that reckons in doubles is exact in.
const maxCount = 1 << 52

// Period is what one limit has counted in one period. The zero value has counted nothing.
type Period struct {
	Start            int64 // Unix seconds
	Requests, Tokens int64
}

// Fit returns what counts in the period with these bounds: itself, or nothing used if it is of another. One that begins at
// the end of it counts in its place: then the clock was set back over the edge, which gives nobody a second quota.
func (p Period) Fit(start, end int64) Period {
	if p.Start == start || p.Start == end {
		return p
	}
	return Period{Start: start}
}

// Take returns the period with one more request in it.
func (p Period) Take(tokens int64) Period {
	p.Requests = min(p.Requests+1, maxCount)
	p.Tokens = min(p.Tokens+min(max(0, tokens), maxCount), maxCount)
	return p
}

// Settle corrects what a request reserved to what it used. start is of the period in which it was reserved: nothing is done
// to another. Nothing goes below 0.
func (p Period) Settle(start, reserved int64, used Used) Period {
	return p.settled(start, reserved, used).plus(Period{})
}

// settled is Settle of counts that may be below 0.
func (p Period) settled(start, reserved int64, used Used) Period {
	if p.Start != start {
		return p
	}
	if used.Tokens >= 0 {
		p.Tokens -= min(max(0, reserved), maxCount)
		p.Tokens = min(max(-maxCount, p.Tokens+min(used.Tokens, maxCount)), maxCount)
	}
	if used.Unserved {
		p.Requests--
	}
	return p
}

// plus gives the counts of both, of one period, together. They are not below 0.
func (p Period) plus(o Period) Period {
	p.Requests = min(max(0, p.Requests+o.Requests), maxCount)
	p.Tokens = min(max(0, p.Tokens+o.Tokens), maxCount)
	return p
}

// used gives what a kind of quota counts of it.
func (p *Period) used(k Kind) int64 {
	if k.ofTokens() {
		return p.Tokens
	}
	return p.Requests
}

// calendar is the bounds of the three periods that hold a moment.
type calendar [spans]struct{ start, end int64 }

func calendarOf(now time.Time) (c calendar) {
	for s := range Span(spans) {
		c[s].start, c[s].end = s.Bounds(now)
	}
	return c
}

// holds says whether it is still the calendar of now.
func (c *calendar) holds(now time.Time) bool {
	t := now.Unix()
	return c[Minute].start <= t && t < c[Minute].end
}
