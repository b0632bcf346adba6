package text

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// Text is normalised in pieces as it would be whole, whatever stands before it.
func TestNFCInPieces(t *testing.T) {
	parts := []string{"a", "e", "<", "=", " ", "\n", "plain text of some length, ", strings.Repeat("long ", 120), "\u0301", "\u0338", "\u0327", "é", "e\u0301", "≮", "각", "\u1100", "\u1161", "\u11a8",
		"网关", strings.Repeat("网关在门口计数，然后（让）请求通过。", 30), "、\u3099", "か\u3099", "〪", "\u212b", "\u0344", "\xff", "\xe7\xbd", "\xcc", strings.Repeat("\u0301", 35), "\u034f", "😀", "\u09c7\u09be"}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		var text strings.Builder
		for range rng.IntN(12) {
			text.WriteString(parts[rng.IntN(len(parts))])
		}
		before := norm.NFC.AppendString(nil, parts[rng.IntN(len(parts))])
		want := norm.NFC.AppendString(slices.Clone(before), text.String())
		if got := appendNFC(slices.Clone(before), text.String()); string(got) != string(want) {
			t.Fatalf("%q behind %q: %q, want %q", text.String(), before, got, want)
		}
	}
}

// What is passed over as inert is: each character by itself.
func TestInertCharacters(t *testing.T) {
	passed := 0
	for r := range rune(0x20000) {
		c := string(r)
		if inert(c) < len(c) {
			continue
		}
		passed++
		if p := norm.NFC.PropertiesString(c); !norm.NFC.IsNormalString(c) || !p.BoundaryBefore() || p.CCC() != 0 {
			t.Errorf("%q (%U) is not inert", r, r)
		}
	}
	if passed < 0x80+0x6000 {
		t.Errorf("only %d characters are passed over", passed)
	}
}
