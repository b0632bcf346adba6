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

// appendAllowed writes what a limit allows, for redis_acquire.lua.
func appendAllowed(b []byte, l *policy.Limit) []byte {
	interval, burst := 0.0, 0.0
	if l.RequestsPerSecond > 0 {
		interval, burst = float64(intervalOf(l.RequestsPerSecond)), float64(max(1, l.Burst))
	}
	return appendNumbers(b, interval, burst, float64(l.Concurrency), float64(l.TokensPerMinute), float64(l.RequestsPerDay),
		float64(l.TokensPerDay), float64(l.RequestsPerMonth), float64(l.TokensPerMonth))
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
func decision(reply string, ask Ask, memoLen int) (Decision, error) {
	if reply == "" {
		return Decision{}, errReply
	}
	letter, n := reply[0], numbers{rest: reply[1:]}
	switch letter {
	case saysVoid:
		return Decision{}, errGiveUp
	case saysRefused:
		now := n.next()
		return decided(now, n.rest, ask, n.bad, false)
	case saysAdmitted:
		if len(reply) < recordLen+memoLen {
			return Decision{}, errReply
		}
		_, _, at, _ := n.next(), n.next(), n.next(), n.next()
		return decided(at, reply[recordLen+memoLen:], ask, n.bad, true)
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
	return decided(at, facts, ask, false, true)
}

// decided judges the facts again, for how all stands. The script and Decide are of one mind, or neither is believed.
func decided(now int64, facts string, ask Ask, bad, admitted bool) (Decision, error) {
	at := time.UnixMicro(now)
	fs, err := readFacts(facts, ask.Limits)
	if err != nil || bad {
		return Decision{}, errReply
	}
	d := Decide(at, fs, ask.Tokens)
	if d.Admitted != admitted {
		return Decision{}, errReply
	}
	if admitted {
		d.Hold = holdOf(ask, at)
	}
	return d, nil
}
