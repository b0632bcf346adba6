package policy

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// Price is what a million tokens of a model cost. Cached prompt tokens cost Cached, the others of the prompt Input.
type Price struct {
	Currency              string // ISO 4217
	Input, Cached, Output Micros
}

// Micros is an amount of money in millionths of its currency.
type Micros int64

// MaxPrice bounds the price of a million tokens. A request of a billion tokens still costs what an int64 holds.
const MaxPrice Micros = 1_000_000_000 * microsInOne

const microsInOne = 1_000_000

// ParseMicros reads an amount such as 10 or 0.125: no sign, no exponent, and up to six digits behind the point.
func ParseMicros(s string) (m Micros, ok bool) {
	if !microsRE.MatchString(s) {
		return 0, false
	}
	whole, behind, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	part, _ := strconv.ParseInt((behind + "000000")[:6], 10, 64)
	if err != nil || n > (math.MaxInt64-part)/microsInOne {
		return 0, false
	}
	return Micros(n*microsInOne + part), true
}

// String is the shortest text that ParseMicros reads as m.
func (m Micros) String() string {
	digits := strconv.FormatUint(uint64(m), 10)
	if len(digits) < 7 {
		digits = strings.Repeat("0", 7-len(digits)) + digits
	}
	whole, behind := digits[:len(digits)-6], strings.TrimRight(digits[len(digits)-6:], "0")
	if behind == "" {
		return whole
	}
	return whole + "." + behind
}

const (
	microsForm   = `^(0|[1-9][0-9]*)(\.[0-9]{1,6})?$`
	currencyForm = `^[A-Z]{3}$`
	wantMicros   = `want an amount from 0 to 1000000000, like "1.25", with up to 6 digits behind the point`
)

var (
	microsRE   = regexp.MustCompile(microsForm)
	currencyRE = regexp.MustCompile(currencyForm)
)

// priced checks what a model costs. Nothing is taken for granted but the price of cached tokens: a word that was forgotten
// would give tokens away.
func (c *checker) priced(p *policyv1.Price, path string) {
	if p == nil {
		return
	}
	if p.GetCurrency() == "" {
		c.add(p, path, "currency", -1, "is missing; want a code of ISO 4217, like USD")
	} else if !currencyRE.MatchString(p.GetCurrency()) {
		c.add(p, path, "currency", -1, "want a code of ISO 4217, like USD")
	}
	for _, amount := range []struct {
		field, lacking string
		micros         *int64
	}{
		{"input", "a million prompt tokens, 0 where they are free", p.Input},
		{"cached", "", p.Cached},
		{"output", "a million tokens of answers, 0 where there are none", p.Output},
	} {
		switch {
		case amount.micros == nil && amount.lacking != "":
			c.add(p, path, amount.field, -1, "is missing; want the price of %s", amount.lacking)
		case amount.micros != nil && (*amount.micros < 0 || *amount.micros > int64(MaxPrice)):
			c.add(p, path, amount.field, -1, wantMicros)
		}
	}
}

// compilePrice applies the default: cached tokens cost as much as others.
func compilePrice(p *policyv1.Price) *Price {
	if p == nil {
		return nil
	}
	out := &Price{Currency: p.GetCurrency(), Input: Micros(p.GetInput()), Cached: Micros(p.GetInput()), Output: Micros(p.GetOutput())}
	if p.Cached != nil {
		out.Cached = Micros(p.GetCached())
	}
	return out
}
