package kv

import (
	"context"
	"runtime"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// batches are payloads of 32 blocks of 16 tokens each, every chain behind a parent of its own.
func batches(b *testing.B, n int) [][]byte {
	b.Helper()
	out := make([][]byte, n)
	name := uint64(1) << 60
	for i := range out {
		hashes, tokens := make([]uint64, 32), make([]uint32, 32*16)
		for j := range hashes {
			name++
			hashes[j] = name * 0x9e3779b97f4a7c15
		}
		for j := range tokens {
			tokens[j] = uint32(name*7+uint64(j)*31) % 150_000
		}
		e := storedEvent(hashes[0], 0, 0, 16)
		e["block_hashes"], e["token_ids"], e["extra_keys"] = hashes, tokens, make([]any, 32)
		payload, err := msgpack.Marshal([]any{1.5, []any{e}, 0})
		if err != nil {
			b.Fatal(err)
		}
		out[i] = payload
	}
	return out
}

// benchVocabulary is as large as real ones, four bytes a token.
func benchVocabulary() *pieces {
	p := &pieces{}
	for id := range uint32(150_000) {
		p.bytes = append(p.bytes, byte(id), byte(id>>8), byte(id>>16), ' ')
		p.ends = append(p.ends, uint32(len(p.bytes)))
	}
	return p
}

// BenchmarkEvents decodes and announces blocks to no picker, one and ten.
func BenchmarkEvents(b *testing.B) {
	payloads := batches(b, 20_000)
	for _, pickers := range []int{0, 1, 10} {
		b.Run([]string{0: "alone", 1: "one picker", 10: "ten pickers"}[pickers], func(b *testing.B) { benchEvents(b, payloads, pickers) })
	}
}

func benchEvents(b *testing.B, payloads [][]byte, pickers int) {
	a := newAnnouncer(0, func(skipped, int) {})
	a.model = &Model{a.model.profile, benchVocabulary()}
	a.reset(testSeed, 1<<30)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{}, pickers)
	for range pickers {
		go func() {
			for at := (place{}); ; {
				if _, err := a.next(ctx, &at); err != nil {
					done <- struct{}{}
					return
				}
			}
		}()
	}
	var d decoder
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		if n%len(payloads) == 0 {
			a.clear(0)
		}
		batch, err := d.decode(payloads[n%len(payloads)])
		if err != nil {
			b.Fatal(err)
		}
		a.apply(0, batch.Events)
		n++
	}
	stop()
	for range pickers {
		<-done
	}
	b.ReportMetric(float64(n*32)/b.Elapsed().Seconds(), "blocks/s")
}

// BenchmarkMsgpack is a bare library that decodes the same bytes into a struct, for comparison.
func BenchmarkMsgpack(b *testing.B) {
	payloads := batches(b, 1000)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		var batch struct {
			_msgpack struct{} `msgpack:",as_array"`
			Time     float64
			Events   []struct {
				Type   string   `msgpack:"type"`
				Hashes []uint64 `msgpack:"block_hashes"`
				Parent *uint64  `msgpack:"parent_block_hash"`
				Tokens []uint32 `msgpack:"token_ids"`
				Size   int      `msgpack:"block_size"`
				Medium string   `msgpack:"medium"`
				Extra  []any    `msgpack:"extra_keys"`
			}
			Rank int
		}
		if err := msgpack.Unmarshal(payloads[n%len(payloads)], &batch); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n*32)/b.Elapsed().Seconds(), "blocks/s")
}

// BenchmarkTable tells what a block takes in memory, and a snapshot of a million.
func BenchmarkTable(b *testing.B) {
	payloads := batches(b, 1<<20/32)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		a := newAnnouncer(0, func(skipped, int) {})
		a.reset(testSeed, 1<<30)
		var d decoder
		for _, p := range payloads {
			batch, err := d.decode(p)
			if err != nil {
				b.Fatal(err)
			}
			a.apply(0, batch.Events)
		}
		var at place
		a.ring, a.ringSize = nil, 0
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(a.table.used), "bytes/block")
		size := 0
		for _, m := range a.fromSnapshot(&at) {
			size += len(m)
		}
		b.ReportMetric(float64(size)/float64(a.table.used), "snapshot-bytes/block")
	}
}
