package usage

import (
	"math"
	"math/bits"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// million is how many tokens a price is for.
const million = 1_000_000

// Cost is what tokens cost at p, in micro-units of its currency, rounded half up once over their sum; nil where p is nil, a
// count is unknown (cached aside: unknown is priced as none), a number is below 0, or the sum fits no int64. cached above
// prompt counts as prompt.
//
//	(prompt − cached) × input + cached × cached + completion × output, over a million
func Cost(p *usagev1.Price, prompt, cached, completion *int64) *int64 {
	if p == nil || prompt == nil || completion == nil || min(*prompt, *completion, p.Input, p.Cached, p.Output) < 0 {
		return nil
	}
	var found int64
	if cached != nil {
		found = min(max(*cached, 0), *prompt)
	}
	// Three products of 63 bits each, and a half, are below 2^128.
	var high, low, carry uint64 = 0, million / 2, 0
	for _, part := range [...][2]int64{{*prompt - found, p.Input}, {found, p.Cached}, {*completion, p.Output}} {
		h, l := bits.Mul64(uint64(part[0]), uint64(part[1]))
		low, carry = bits.Add64(low, l, 0)
		high, _ = bits.Add64(high, h, carry)
	}
	if high >= million {
		return nil
	}
	quotient, _ := bits.Div64(high, low, million)
	if quotient > math.MaxInt64 {
		return nil
	}
	cost := int64(quotient)
	return &cost
}
