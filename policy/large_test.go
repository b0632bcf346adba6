package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkLarge is what a change costs a spoke with 100,000 keys: compiling a revision, and laying revocations over it.
func BenchmarkLarge(b *testing.B) {
	set := randomSet(rand.New(rand.NewPCG(1, 3)), 100_000)
	s, err := Compile(set, t0)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("compile", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Compile(set, t0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("revoke", func(b *testing.B) {
		var list []Revocation
		for i := range 1000 {
			list = append(list, Revocation{Key: fmt.Sprint("k", i*7)})
		}
		b.ReportAllocs()
		for b.Loop() {
			s.Revoke(list)
		}
	})
}
