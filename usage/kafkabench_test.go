package usage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// BenchmarkShip ships a journal to a real Kafka, and sends the same messages with kafka-go's bare producer (all replicas,
// the same compression, messages ready in memory), in turns. It reports the median records a second of each, and their ratio.
func BenchmarkShip(b *testing.B) {
	const records = 100_000
	k, dir := startKafka(b), b.TempDir()
	s, err := Open(dir, "door/main", Options{SegmentBytes: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	for i := range records {
		r := typical()
		r.Id, r.Team = UsageID(fmt.Sprintf("5b1f6c0e-8f7e-4b53-9d2a-%012d", i)), fmt.Sprintf("team-%d", i%17)
		s.Append(r)
	}
	if err := s.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	var shipped, bare, ratio []float64
	for n := 0; b.Loop(); n++ {
		shipTopic, bareTopic := fmt.Sprintf("ship%d.%d.", b.N, n), fmt.Sprintf("bare%d.%d", b.N, n)
		k.createTopic(b, shipTopic+KindUsage, 3)
		k.createTopic(b, bareTopic, 3)
		x := records / shipOnce(b, k, dir, shipTopic).Seconds()
		y := records / produceBare(b, k, dir, bareTopic).Seconds()
		shipped, bare, ratio = append(shipped, x), append(bare, y), append(ratio, x/y)
	}
	b.ReportMetric(median(shipped), "ship-records/s")
	b.ReportMetric(median(bare), "bare-records/s")
	b.ReportMetric(median(ratio), "ratio")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// shipOnce ships the whole journal, positions saved as in life, and returns how long that took.
func shipOnce(b *testing.B, k *realKafka, dir, prefix string) time.Duration {
	if err := savePosition(dir+"/door_main", position{}); err != nil {
		b.Fatal(err)
	}
	f, err := NewForwarder(ForwarderConfig{Dir: dir, Source: "door/main", Brokers: []string{k.addr}, Prefix: prefix, poll: time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	start := time.Now()
	running.Go(func() { f.Run(ctx) })
	drain(b, f)
	took := time.Since(start)
	cancel()
	running.Wait()
	return took
}

func produceBare(b *testing.B, k *realKafka, dir, topic string) time.Duration {
	var messages []kafka.Message
	c := newChunk(1 << 20)
	for cursor := (cursor{dir: dir + "/door_main"}); ; c = newChunk(1 << 20) {
		some, err := cursor.next(c)
		if err != nil {
			b.Fatal(err)
		}
		if !some {
			break
		}
		for _, e := range c.events {
			messages = append(messages, kafka.Message{Key: e.key, Value: e.value, Headers: e.headers})
		}
	}
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{
		Addr: kafka.TCP(k.addr), Topic: topic, Balancer: kafka.Murmur2Balancer{Consistent: true}, RequiredAcks: kafka.RequireAll,
		Compression: kafka.Lz4, BatchSize: 1000, BatchTimeout: 5 * time.Millisecond, Transport: transport,
	}
	start := time.Now()
	if err := w.WriteMessages(context.Background(), messages...); err != nil {
		b.Fatal(err)
	}
	took := time.Since(start)
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return took
}
