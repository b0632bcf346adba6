package limits

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// counterLen is the length of a counter as the scripts keep it, in doubles. First what changes with each request: of its bucket
// the moment at which it is full, in whole microseconds, and the nanoseconds beyond it; its leases (-1: to be counted); the
// tokens of its minute; requests and tokens of its day, and of its month. Then the bucket's interval in nanoseconds and its
// burst; a moment before which no lease expires; until when its key lives; the numbers of the minute and of the day since the
// epoch, and of the month since the year 0.
const counterLen = 15 * 8

// Letters that redis_acquire.lua answers with.
const (
	saysAdmitted = 'A'
	saysRefused  = 'R'
	saysSame     = 'S'
	saysVoid     = 'X'
)

// recordLen is the length of a record before the limits of the admission.
const recordLen = 1 + 4*8

func appendNumbers(b []byte, fs ...float64) []byte {
	for _, f := range fs {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
	}
	return b
}

// appendAllowed writes what a limit allows, for redis_acquire.lua: of quotas what others have left of them.
func appendAllowed(b []byte, l *policy.Limit, beside *Beside) []byte {
	interval, burst := 0.0, 0.0
	if l.RequestsPerSecond > 0 {
		interval, burst = float64(intervalOf(l.RequestsPerSecond)), float64(max(1, l.Burst))
	}
	return appendNumbers(b, interval, burst, float64(l.Concurrency), float64(l.TokensPerMinute), leftOf(l, RequestsPerDay, beside),
		leftOf(l, TokensPerDay, beside), leftOf(l, RequestsPerMonth, beside), leftOf(l, TokensPerMonth, beside))
}

// leftOf is what others have left of a quota: below 0 where they have used more than there is. 0 stands for no quota; one that is
// used up exactly is a bit beside it, to the side on which a whole number compares as with 0.
func leftOf(l *policy.Limit, k Kind, beside *Beside) float64 {
	quota := quotaOf(l, k)
	if quota <= 0 {
		return 0
	}
	switch left := quota - beside.of(k); {
	case left != 0:
		return float64(left)
	case k.ofTokens():
		return 0.25
	}
	return -0.25
}

// besideLen is the length of a Beside as it is kept in a record.
const besideLen = 4 * 8

// appendBeside writes what others had counted when an ask was decided; nothing, if they had not.
func appendBeside(b []byte, beside []Beside) []byte {
	for _, o := range beside {
		b = appendNumbers(b, float64(o.DayRequests), float64(o.DayTokens), float64(o.MonthRequests), float64(o.MonthTokens))
	}
	return b
}

// parseBeside reads what appendBeside wrote before the counters of n limits, and gives these.
func parseBeside(s string, n int) (beside []Beside, facts string, err error) {
	if n == 0 || len(s) != n*(besideLen+counterLen) {
		return nil, s, nil
	}
	r := numbers{rest: s}
	for range n {
		b := Beside{r.next(), r.next(), r.next(), r.next()}
		r.bad = r.bad || b.DayRequests < 0 || b.DayTokens < 0 || b.MonthRequests < 0 || b.MonthTokens < 0
		beside = append(beside, b)
	}
	if r.bad {
		return nil, "", errReply
	}
	return beside, r.rest, nil
}

func setBeside(facts []Fact, beside []Beside) {
	for i := range beside {
		facts[i].Elsewhere = beside[i]
	}
}

// numbers takes whole numbers, which travel as doubles, off the front.
type numbers struct {
	rest string
	bad  bool
}

func (n *numbers) next() int64 {
	if len(n.rest) < 8 {
		n.bad = true
		return 0
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(n.rest[:8])))
	n.rest = n.rest[8:]
	if !(math.Abs(f) < 1<<63) {
		n.bad = true
		return 0
	}
	return int64(f)
}

// fact reads a counter.
func (n *numbers) fact(l policy.Limit) Fact {
	f := Fact{Limit: l}
	full, beyond := n.next(), n.next()
	f.InFlight = max(0, n.next())
	minute, day, month := &f.Periods[Minute], &f.Periods[Day], &f.Periods[Month]
	minute.Tokens, day.Requests, day.Tokens, month.Requests, month.Tokens = n.next(), n.next(), n.next(), n.next(), n.next()
	f.Bucket.Interval, f.Bucket.Burst = time.Duration(n.next()), int(n.next())
	if f.Bucket.Interval > 0 {
		f.Bucket.Full = time.UnixMicro(full).Add(time.Duration(beyond))
	}
	_, _ = n.next(), n.next()
	minute.Start, day.Start = n.next()*60, n.next()*24*60*60
	if m := n.next(); m > 0 {
		month.Start = time.Date(int(m/12), time.Month(m%12+1), 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	for _, p := range f.Periods {
		n.bad = n.bad || p.Requests < 0 || p.Tokens < 0
	}
	n.bad = n.bad || f.Bucket.Interval < 0 || f.Bucket.Burst < 0
	return f
}

// readFacts reads as many counters as there are limits.
func readFacts(s string, ls []policy.Limit) ([]Fact, error) {
	if len(s) != len(ls)*counterLen {
		return nil, errReply
	}
	n := numbers{rest: s}
	facts := make([]Fact, len(ls))
	for i := range ls {
		facts[i] = n.fact(ls[i])
	}
	if n.bad {
		return nil, errReply
	}
	return facts, nil
}

// decision reads the script's reply to an ask. memoLen is the length of its limits as bytes.
func decision(reply string, ask Ask, beside []Beside, memoLen int) (Decision, error) {
	if reply == "" {
		return Decision{}, errReply
	}
	letter, n := reply[0], numbers{rest: reply[1:]}
	switch letter {
	case saysVoid:
		return Decision{}, errGiveUp
	case saysRefused:
		now := n.next()
		return decided(now, n.rest, ask, beside, n.bad, false)
	case saysAdmitted:
		if len(reply) < recordLen+memoLen {
			return Decision{}, errReply
		}
		_, _, at, _ := n.next(), n.next(), n.next(), n.next()
		return decided(at, reply[recordLen+memoLen:], ask, beside, n.bad, true)
	case saysSame:
		return firstDecision(reply[1:], ask.Admission)
	}
	return Decision{}, errReply
}

// firstDecision reads a record: what the admission was told first.
func firstDecision(record, admission string) (Decision, error) {
	if len(record) < recordLen {
		return Decision{}, errReply
	}
	n := numbers{rest: record[1:recordLen]}
	_, _, at, tokens := n.next(), n.next(), n.next(), n.next()
	ls, facts, err := parseLimits(record[recordLen:])
	if err != nil || n.bad || tokens < 0 {
		return Decision{}, errReply
	}
	ask := Ask{Admission: admission, Limits: ls, Tokens: tokens}
	if facts == "" { // restored: nobody knows how things stood
		return Decision{Admitted: true, Hold: holdOf(ask, time.UnixMicro(at))}, nil
	}
	beside, facts, err := parseBeside(facts, len(ls))
	if err != nil {
		return Decision{}, err
	}
	return decided(at, facts, ask, beside, false, true)
}

// decided judges the facts again, for how all stands. The script and Decide are of one mind, or neither is believed.
func decided(now int64, facts string, ask Ask, beside []Beside, bad, admitted bool) (Decision, error) {
	at := time.UnixMicro(now)
	fs, err := readFacts(facts, ask.Limits)
	if err != nil || bad {
		return Decision{}, errReply
	}
	setBeside(fs, beside)
	d := Decide(at, fs, ask.Tokens)
	if d.Admitted != admitted {
		return Decision{}, errReply
	}
	if admitted {
		d.Hold = holdOf(ask, at)
	}
	return d, nil
}
