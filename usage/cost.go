package usage

import (
	"math/big"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// million is how many tokens a price is for.
var million = big.NewInt(1_000_000)

// Cost is what tokens cost at p, in micro-units of its currency, rounded half up once over their sum; nil where p is nil, a
// count is unknown (cached aside: unknown is priced as none), or the sum fits no int64. cached above prompt counts as prompt.
//
//	(prompt − cached) × input + cached × cached + completion × output, over a million
func Cost(p *usagev1.Price, prompt, cached, completion *int64) *int64 {
	if p == nil || prompt == nil || completion == nil || *prompt < 0 || *completion < 0 {
		return nil
	}
	var found int64
	if cached != nil {
		found = min(max(*cached, 0), *prompt)
	}
	sum := new(big.Int)
	for _, part := range [...][2]int64{{*prompt - found, p.Input}, {found, p.Cached}, {*completion, p.Output}} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
	}
	sum.Add(sum, big.NewInt(500_000)).Quo(sum, million)
	if !sum.IsInt64() {
		return nil
	}
	cost := sum.Int64()
	return &cost
}
