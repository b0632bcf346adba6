package usage

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

func typical() *usagev1.Record {
	return &usagev1.Record{
		Id: "5b1f6c0e-8f7e-4b53-9d2a-2f4f3f1f9a10/usage", Kind: KindUsage, Admission: "5b1f6c0e-8f7e-4b53-9d2a-2f4f3f1f9a10",
		Key: "alice-laptop", Team: "research", Model: "sim-large", Endpoint: "large", Spoke: "local", Worker: "127.0.0.1:40123",
		Revision: 12, Operation: "chat", Attempt: 1, Stream: true, PromptTokens: proto.Int64(83000), CachedTokens: proto.Int64(79000),
		CompletionTokens: proto.Int64(412), CountedFrom: CountedEngine, Outcome: OutcomeComplete, Status: proto.Uint32(200),
		RequestBytes: proto.Int64(330_000), ResponseBytes: proto.Int64(91_000),
		AdmittedAt: timestamppb.Now(), FirstByteAt: timestamppb.Now(), EndedAt: timestamppb.Now(),
	}
}

// BenchmarkAppend is what a caller pays, and how many records a second reach the disk (all are flushed at the end).
func BenchmarkAppend(b *testing.B) {
	s, err := Open(b.TempDir(), "door/main", Options{Queue: 1 << 30, MaxBytes: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	records := make([]*usagev1.Record, b.N)
	for i := range records {
		records[i] = typical()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, r := range records {
		s.Append(r)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/append")
	if err := s.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkAdd is what the writing goroutine does for a record before the disk, without a chain and with one.
func BenchmarkAdd(b *testing.B) {
	for _, chain := range []bool{false, true} {
		b.Run(fmt.Sprintf("chain=%t", chain), func(b *testing.B) {
			w := &writer{source: "door/main", next: 1, maxBytes: 1 << 40, chain: chain}
			r, lines := typical(), batch{kinds: map[string]int{}}
			b.ReportAllocs()
			for b.Loop() {
				w.add(&lines, r)
				if lines.full() {
					lines.reset()
				}
			}
		})
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	r, buf := typical(), []byte(nil)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendJSON(buf[:0], r)
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkParseLine(b *testing.B) {
	r := typical()
	r.Sequence = 1
	line := appendLine(nil, r)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := parseLine(line[:len(line)-1]); err != nil {
			b.Fatal(err)
		}
	}
}
