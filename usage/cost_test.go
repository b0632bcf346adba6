package usage

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// TestCostAgainstRat holds the cost against fractions, also where numbers are large, odd or absent.
func TestCostAgainstRat(t *testing.T) {
	rnd := rand.New(rand.NewPCG(41, 41))
	known, unknown := 0, 0
	for range 50_000 {
		p := &usagev1.Price{Currency: "USD", Input: amount(rnd), Cached: amount(rnd), Output: amount(rnd)}
		prompt, cached, completion := tokens(rnd), tokens(rnd), tokens(rnd)
		got, want := Cost(p, prompt, cached, completion), ratCost(p, prompt, cached, completion)
		if (got == nil) != (want == nil) || got != nil && want.Cmp(big.NewInt(*got)) != 0 {
			t.Fatalf("%v × %v, %v, %v: %v, want %v", p, show(prompt), show(cached), show(completion), show(got), want)
		}
		if got == nil {
			unknown++
		} else {
			known++
		}
	}
	if known < 20_000 || unknown < 2000 {
		t.Errorf("%d costs known, %d unknown: the test tries too little", known, unknown)
	}
	if Cost(nil, proto.Int64(1), nil, proto.Int64(1)) != nil {
		t.Error("a cost without a price")
	}
}

// ratCost is the cost by fractions; nil: unknown, or too large.
func ratCost(p *usagev1.Price, prompt, cached, completion *int64) *big.Int {
	if prompt == nil || completion == nil || *prompt < 0 || *completion < 0 || p.Input < 0 || p.Cached < 0 || p.Output < 0 {
		return nil
	}
	hits := new(big.Rat)
	if cached != nil && *cached > 0 {
		hits.SetInt64(min(*cached, *prompt))
	}
	times := func(tokens *big.Rat, price int64) *big.Rat {
		return new(big.Rat).Mul(tokens, big.NewRat(price, 1_000_000))
	}
	rest := new(big.Rat).Sub(new(big.Rat).SetInt64(*prompt), hits)
	sum := times(rest, p.Input)
	sum.Add(sum, times(hits, p.Cached))
	sum.Add(sum, times(new(big.Rat).SetInt64(*completion), p.Output))
	sum.Add(sum, big.NewRat(1, 2)) // then cut off what is behind the point: half up
	whole := new(big.Int).Quo(sum.Num(), sum.Denom())
	if !whole.IsInt64() {
		return nil
	}
	return whole
}

// amount of any size, as a rule up to what a policy may say.
func amount(rnd *rand.Rand) int64 {
	switch rnd.IntN(40) {
	case 0:
		return math.MaxInt64
	case 1:
		return -1
	}
	return rnd.Int64N(1_000_000_000_000_001) >> rnd.IntN(51)
}

func tokens(rnd *rand.Rand) *int64 {
	switch rnd.IntN(20) {
	case 0:
		return nil
	case 1:
		return proto.Int64(math.MaxInt64 - rnd.Int64N(3))
	case 2:
		return proto.Int64(-rnd.Int64N(3))
	}
	return proto.Int64(rnd.Int64() >> (20 + rnd.IntN(43)))
}

func show(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}
