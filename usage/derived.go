package usage

import (
	"math"
	"math/bits"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Derived is what follows from a record's times and tokens; nil: unknown.
type Derived struct {
	// FirstByte is from admission to the first byte of the answer, Duration from admission to its end, in milliseconds, rounded.
	// A time that lies before the admission is another clock's, and makes them unknown.
	FirstByte, Duration *int64
	// Speed is completion tokens a second of Duration, in thousandths, cut off.
	Speed *int64
}

// Derive computes them. Only "usage" records have all that they need.
func Derive(r *usagev1.Record) Derived {
	first, _ := between(r.AdmittedAt, r.FirstByteAt)
	whole, exact := between(r.AdmittedAt, r.EndedAt)
	d := Derived{FirstByte: first, Duration: whole}
	if r.CompletionTokens != nil && *r.CompletionTokens >= 0 && exact > 0 {
		high, low := bits.Mul64(uint64(*r.CompletionTokens), uint64(1000*time.Second))
		if high < uint64(exact) {
			if speed, _ := bits.Div64(high, low, uint64(exact)); speed <= math.MaxInt64 {
				n := int64(speed)
				d.Speed = &n
			}
		}
	}
	return d
}

// between is the time from one moment to another.
func between(from, to *timestamppb.Timestamp) (ms *int64, exact time.Duration) {
	if from.CheckValid() != nil || to.CheckValid() != nil { // also: nil
		return nil, 0
	}
	exact = to.AsTime().Sub(from.AsTime())
	if exact < 0 {
		return nil, 0
	}
	n := exact.Round(time.Millisecond).Milliseconds()
	return &n, exact
}

// AppendDerivedJSON appends the JSON form of r with three more members: ttfb_ms, duration_ms and milli_tokens_per_second.
func AppendDerivedJSON(dst []byte, r *usagev1.Record) []byte {
	dst = AppendJSON(dst, r)
	o := object{b: dst[:len(dst)-1], begun: true}
	d := Derive(r)
	o.optional("ttfb_ms", d.FirstByte)
	o.optional("duration_ms", d.Duration)
	o.optional("milli_tokens_per_second", d.Speed)
	return append(o.b, '}')
}
