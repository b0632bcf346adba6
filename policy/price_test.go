package policy

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// TestMicrosAgainstRat: each text that is an amount is exactly that many millionths, and its shortest text says the same.
func TestMicrosAgainstRat(t *testing.T) {
	rnd := rand.New(rand.NewPCG(31, 31))
	for range 20_000 {
		text := fmt.Sprint(rnd.Uint64() >> rnd.IntN(64) >> 20)
		if digits := rnd.IntN(7); digits > 0 {
			text += fmt.Sprintf(".%0*d", digits, rnd.IntN([]int{1, 10, 100, 1000, 10_000, 100_000, 1_000_000}[digits]))
		}
		want, _ := new(big.Rat).SetString(text)
		want.Mul(want, big.NewRat(1_000_000, 1))
		got, ok := ParseMicros(text)
		if fits := want.Num().IsInt64(); ok != fits || !want.IsInt() {
			t.Fatalf("%s: %v", text, ok)
		}
		if !ok {
			continue
		}
		if want.Cmp(new(big.Rat).SetInt64(int64(got))) != 0 {
			t.Fatalf("%s is %d millionths, want %s", text, got, want)
		}
		short := got.String()
		if again, ok := ParseMicros(short); !ok || again != got || len(short) > len(text) {
			t.Fatalf("%s became %s", text, short)
		}
	}
}

func FuzzMicros(f *testing.F) {
	for _, s := range []string{"0", "1.25", "0.000001", "9223372036854.775807", "9223372036854.775808", "-1", "1e3", "١", "1.", ".1", "1.0000000", "00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, ok := ParseMicros(s)
		exact, isNumber := new(big.Rat).SetString(s)
		switch {
		case !ok && m != 0:
			t.Fatalf("%q: %d beside a refusal", s, m)
		case ok && (!isNumber || strings.ContainsAny(s, "eE+-_/ xX") || exact.Cmp(big.NewRat(int64(m), microsInOne)) != 0):
			t.Fatalf("%q was read as %d", s, m)
		}
	})
}

// TestPriceOfSetsFromElsewhere: what a file cannot say is refused all the same.
func TestPriceOfSetsFromElsewhere(t *testing.T) {
	price := func(p *policyv1.Price) func(*policyv1.Set) {
		return func(s *policyv1.Set) { s.Models[0] = &policyv1.Model{Name: s.Models[0].Name, Endpoint: "e0", Price: p} }
	}
	refused(t, map[string]refusal{
		"negative":       {price(&policyv1.Price{Currency: "USD", Input: proto.Int64(-1), Output: proto.Int64(1)}), "price.input: want an amount from 0"},
		"too much":       {price(&policyv1.Price{Currency: "USD", Input: proto.Int64(1), Output: proto.Int64(int64(MaxPrice) + 1)}), "price.output: want an amount from 0"},
		"cached":         {price(&policyv1.Price{Currency: "USD", Input: proto.Int64(1), Cached: proto.Int64(-1), Output: proto.Int64(1)}), "price.cached: want an amount from 0"},
		"without output": {price(&policyv1.Price{Currency: "USD", Input: proto.Int64(1)}), "price.output: is missing"},
		"currency":       {price(&policyv1.Price{Currency: "US$", Input: proto.Int64(1), Output: proto.Int64(1)}), "price.currency: want a code of ISO 4217"},
	})
}

// TestPriceIsOfTheModelServed: an alias costs what its target costs.
func TestPriceIsOfTheModelServed(t *testing.T) {
	set, err := Parse("p", []byte(`
endpoints: [{name: e}]
models:
  - {name: chat, targets: [{model: dear}]}
  - {name: dear, endpoint: e, price: {currency: EUR, input: 3, cached: 0, output: 15.5}}
  - {name: free, endpoint: e}`))
	if err != nil {
		t.Fatal(err)
	}
	s := compiled(t, set)
	want := Price{Currency: "EUR", Input: 3_000_000, Cached: 0, Output: 15_500_000}
	if got := s.Model("chat").Resolve(1).Price; got == nil || *got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if s.Model("chat").Price != nil || s.Model("free").Price != nil {
		t.Error("a price that nobody said")
	}
}

// TestKeptSetGoesOn: what an earlier release took, and this one would refuse for being of no use, stays in force; what is
// unsound does not.
func TestKeptSetGoesOn(t *testing.T) {
	set := &policyv1.Set{
		Endpoints: []*policyv1.Endpoint{{Name: "e"}}, Models: []*policyv1.Model{{Name: "m", Endpoint: "e"}},
		Platform: &policyv1.Platform{Limits: []*policyv1.Limit{{TokensPerMinute: proto.Uint64(500)}}},
	}
	if _, err := Compile(set, t0); err == nil || !strings.Contains(err.Error(), "none would ever pass") {
		t.Errorf("a new set: %v", err)
	}
	if s, err := CompileKept(NewCut(set), t0); err != nil || s.platform[0].TokensPerMinute != 500 {
		t.Errorf("the set from before: %v", err)
	}
	set.Models[0].Endpoint = "nowhere"
	if _, err := CompileKept(NewCut(set), t0); err == nil {
		t.Error("an unsound set goes on")
	}
}
