package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestViewsAreSorted, and have those who are there, whoever came and went in whichever order.
func TestViewsAreSorted(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	f := NewUnacknowledged()
	there := map[string]func(){}
	for range 3000 {
		n := r.IntN(60)
		w := Worker{Name: fmt.Sprintf("w%d", n), Endpoint: "e", Addr: fmt.Sprintf("10.0.0.%d:1", n+1), State: Ready}
		if leave := there[w.Name]; leave != nil {
			leave()
			delete(there, w.Name)
		} else {
			there[w.Name] = mustJoin(t, f, w)
		}
		var want []string
		for name := range there {
			want = append(want, name)
		}
		slices.Sort(want)
		if got := names(f.View().Workers); !slices.Equal(got, want) || !slices.Equal(names(f.Pickable("e")), want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// BenchmarkAWorkerComesAndGoes among a thousand others.
func BenchmarkAWorkerComesAndGoes(b *testing.B) {
	f := NewUnacknowledged()
	join := func(i int) func() {
		leave, err := f.Join(Worker{Name: fmt.Sprintf("w%d", i), Endpoint: "e", Addr: fmt.Sprintf("10.0.%d.%d:1", i/250, i%250+1), State: Ready})
		if err != nil {
			b.Fatal(err)
		}
		return leave
	}
	for i := range 1000 {
		join(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		join(1000)()
	}
}
