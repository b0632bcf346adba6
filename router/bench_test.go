package router

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkPick330K picks for a long conversation that one worker holds but for its last turn, among many workers and
// many other prompts, as the turns of coding agents come.
func BenchmarkPick330K(b *testing.B) {
	for _, workers := range []int{8, 1000} {
		b.Run(fmt.Sprint(workers, " workers"), func(b *testing.B) { pick330K(b, workers) })
	}
}

func pick330K(b *testing.B, workers int) {
	r := New(Config{OverlapWeight: 1, Seed: 1})
	ws := make([]Worker, workers)
	for i := range ws {
		ws[i].Addr = fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250+1)
	}
	r.SetWorkers(ws)
	now := time.Now()
	pick := func(prompt string) Choice {
		now = now.Add(time.Millisecond)
		c, err := r.Pick(now, Ask{Prompt: []byte(prompt)})
		if err != nil {
			b.Fatal(err)
		}
		c.Booking.FirstByte()
		c.Booking.Release()
		return c
	}
	long := text(330_000/8, "x")
	for i := range 160 { // fill the index
		pick(text(330_000/8, fmt.Sprint("o", i, "-")))
	}
	for n := 30_000; n < len(long); n += 3000 { // a hundred turns
		pick(long[:n])
	}
	prompt := []byte(long)
	b.SetBytes(int64(len(prompt)))
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Microsecond)
		c, err := r.Pick(now, Ask{Prompt: prompt})
		if err != nil || c.Blocks != len(prompt)/64+1 {
			b.Fatal(c.Blocks, err)
		}
		c.Booking.Release()
	}
}
