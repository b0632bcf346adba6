package limits

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// Letters that redis_acquire.lua answers with.
const (
	saysAdmitted = 'A'
	saysRefused  = 'R'
	saysSame     = 'S'
	saysVoid     = 'X'
)

// answerLen is what follows the letter: the item that binds, from 1 on (0: none), and four numbers.
const answerLen = 1 + 4*8

// noAnswer is the answer of an admission of which only the leases are known.
var noAnswer = string(make([]byte, answerLen))

var (
	errReply  = errors.New("limits: redis gave an answer that makes no sense")
	errGiveUp = errors.New("limits: the ask was given up before it reached redis")
)

// item is one thing that the script judges.
type item struct {
	limit int // index in the ask's limits
	kind  Kind
}

// itemsOf lists what there is to judge in the order of Decide.
func itemsOf(ls []policy.Limit) []item {
	items := make([]item, 0, 2*len(ls))
	for i := range ls {
		if ls[i].RequestsPerSecond > 0 {
			items = append(items, item{i, Rate})
		}
		if ls[i].Concurrency > 0 {
			items = append(items, item{i, Concurrency})
		}
	}
	return items
}

// appendNumbers writes what the script needs to know of an item: two whole numbers, as doubles.
func (it item) appendNumbers(b []byte, l *policy.Limit) []byte {
	first, second := 0.0, float64(l.Concurrency)
	if it.kind == Rate {
		first, second = float64(intervalOf(l.RequestsPerSecond)), float64(max(1, l.Burst))
	}
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(first))
	return binary.BigEndian.AppendUint64(b, math.Float64bits(second))
}

// decision reads the script's reply to an ask.
func decision(reply, admission string, ls []policy.Limit) (Decision, error) {
	if reply == string(saysVoid) {
		return Decision{}, errGiveUp
	}
	if len(reply) < 1+answerLen {
		return Decision{}, errReply
	}
	letter, answer, memo := reply[0], reply[1:1+answerLen], reply[1+answerLen:]
	if letter == saysSame {
		var err error
		if ls, err = parseLimits([]byte(memo)); err != nil {
			return Decision{}, err
		}
	} else if letter != saysAdmitted && letter != saysRefused {
		return Decision{}, errReply
	}
	items := itemsOf(ls)
	d := Decision{Admitted: letter != saysRefused}
	n := int(answer[0])
	if n > len(items) || n == 0 && !d.Admitted { // a refusal says what refuses
		return Decision{}, errReply
	}
	if n > 0 {
		it, numbers := items[n-1], [4]int64{}
		for i := range numbers {
			var ok bool
			if numbers[i], ok = number(answer[1+8*i:]); !ok {
				return Decision{}, errReply
			}
		}
		d.Requests = &Standing{
			Limit: ls[it.limit], Kind: it.kind, Max: numbers[0], Remaining: numbers[1],
			Reset: time.Duration(numbers[2]), RetryAfter: time.Duration(numbers[3]),
		}
	}
	if d.Admitted {
		d.Hold = Hold{Admission: admission, Leases: leaseIDs(ls)}
	}
	return d, nil
}

// number reads a number, which is whole and not below 0, that travels as a double.
func number(s string) (int64, bool) {
	f := math.Float64frombits(binary.BigEndian.Uint64([]byte(s[:8])))
	return int64(f), f >= 0 && f < 1<<63
}

// appendLimits writes the memo: the limits of an ask, kept beside the answer, so that the first answer can be given again
// in full whatever the limits are by then.
func appendLimits(b []byte, ls []policy.Limit) []byte {
	for i := range ls {
		l := &ls[i]
		b = append(b, byte(l.Level))
		for _, s := range [...]string{l.Owner, l.Model, l.ID} {
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(l.RequestsPerSecond))
		b = binary.AppendVarint(b, int64(l.Burst))
		b = binary.AppendVarint(b, int64(l.Concurrency))
	}
	return b
}

// parseLimits reads a memo.
func parseLimits(b []byte) ([]policy.Limit, error) {
	r := reader{rest: b}
	var ls []policy.Limit
	for len(r.rest) > 0 && !r.bad {
		ls = append(ls, policy.Limit{
			Level: policy.Level(r.byte()), Owner: r.string(), Model: r.string(), ID: r.string(), RequestsPerSecond: r.float(),
			Burst: int(r.int()), Concurrency: int(r.int()),
		})
	}
	if r.bad {
		return nil, fmt.Errorf("%w: limits cut off", errReply)
	}
	return ls, nil
}

// reader takes values off the front. Once it is bad it gives zeros.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) string() string {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad = true
	}
	r.take(uint64(max(0, size)))
	return string(r.take(n))
}

func (r *reader) float() float64 {
	if b := r.take(8); b != nil {
		return math.Float64frombits(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) int() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.bad = true
	}
	r.take(uint64(max(0, size)))
	return n
}
