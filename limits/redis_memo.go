package limits

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/spokegate/spokegate/policy"
)

// appendLimits writes the limits of an ask as they are kept beside the answer, so that the first answer can be given again in
// full whatever the limits are by then.
func appendLimits(b []byte, ls []policy.Limit) []byte {
	b = binary.AppendUvarint(b, uint64(len(ls)))
	for i := range ls {
		l := &ls[i]
		b = append(b, byte(l.Level))
		for _, s := range [...]string{l.Owner, l.Model, l.ID} {
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(l.RequestsPerSecond))
		for _, n := range [...]int64{int64(l.Burst), int64(l.Concurrency), l.TokensPerMinute, l.RequestsPerDay, l.TokensPerDay,
			l.RequestsPerMonth, l.TokensPerMonth} {
			b = binary.AppendVarint(b, n)
		}
	}
	return b
}

// parseLimits reads what appendLimits wrote, and gives what follows it.
func parseLimits(s string) (ls []policy.Limit, rest string, err error) {
	r := reader{rest: []byte(s)}
	n := r.uint()
	for i := uint64(0); i < n && !r.bad; i++ {
		ls = append(ls, policy.Limit{
			Level: policy.Level(r.byte()), Owner: r.string(), Model: r.string(), ID: r.string(), RequestsPerSecond: r.float(),
			Burst: int(r.int()), Concurrency: int(r.int()), TokensPerMinute: r.int(), RequestsPerDay: r.int(), TokensPerDay: r.int(),
			RequestsPerMonth: r.int(), TokensPerMonth: r.int(),
		})
	}
	if r.bad {
		return nil, "", fmt.Errorf("%w: limits cut off", errReply)
	}
	return ls, string(r.rest), nil
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

func (r *reader) uint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad = true
	}
	r.take(uint64(max(0, size)))
	return n
}

func (r *reader) string() string { return string(r.take(r.uint())) }

func (r *reader) float() float64 {
	if b := r.take(8); b != nil {
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
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
