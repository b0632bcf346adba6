package identity

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// A context is good for its own leg, once, and a refusal for the other leg does not use it up.
func TestContextIsForOneLeg(t *testing.T) {
	m, v := pair()
	c := Context{Admission: "a", Endpoint: "large"}
	main := m.Mint(c, noon)
	c.Leg = LegPrefill
	prefill := m.Mint(c, noon)
	c.Leg = "decode"
	other := m.Mint(c, noon)
	for _, use := range []struct {
		token, leg string
		want       error
	}{
		{main, LegPrefill, ErrLeg}, {prefill, LegMain, ErrLeg}, {other, LegMain, ErrLeg}, {other, LegPrefill, ErrLeg},
		{main, LegMain, nil}, {prefill, LegPrefill, nil},
		{main, LegMain, ErrReplayed}, {prefill, LegPrefill, ErrReplayed}, {main, LegPrefill, ErrLeg}, {prefill, LegMain, ErrLeg},
	} {
		if c, err := v.VerifyLeg(use.token, use.leg, noon); !errors.Is(err, use.want) || err == nil && c.Leg != use.leg {
			t.Errorf("%q as leg %q: %v, want %v", use.token[:20], use.leg, err, use.want)
		}
	}
}

// Of a body that is bound whole any change is seen; of a larger one any change of its length, its head and its tail.
func TestBodyDigest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 1 << 10, digestWhole - 1, digestWhole, digestWhole + 1, 330_000} {
		body := bytes.Repeat([]byte("x"), n)
		want := BodyDigest(body)
		if want != BodyDigest(bytes.Clone(body)) || len(want) != 43 {
			t.Fatalf("%d bytes: %q, and another time another", n, want)
		}
		if BodyDigest(append(bytes.Clone(body), 'x')) == want || n > 0 && BodyDigest(body[1:]) == want {
			t.Errorf("%d bytes: another length is not seen", n)
		}
		for range 50 {
			if n == 0 {
				break
			}
			at := rnd.IntN(min(n, digestWhole/2))
			if rnd.IntN(2) == 0 {
				at = n - 1 - at
			}
			body[at]++
			if BodyDigest(body) == want {
				t.Fatalf("%d bytes: a change at %d is not seen", n, at)
			}
			body[at]--
		}
	}
	if a, b := bytes.Repeat([]byte("x"), digestWhole), bytes.Repeat([]byte("x"), 2*digestWhole); BodyDigest(a) == BodyDigest(b) {
		t.Error("a body is taken for its own head and tail")
	}
}

func BenchmarkBodyDigest(b *testing.B) {
	for _, n := range []int{1 << 10, 330_000} {
		body := make([]byte, n)
		b.Run("", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				BodyDigest(body)
			}
		})
	}
}
