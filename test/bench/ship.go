package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/spokegate/spokegate/usage"
)

// ship measures the forwarder beside kafka-go's bare producer: the same messages to the same Kafka, with the same
// acknowledgements, compression and partitions, but ready in memory, while the forwarder reads them from its journal.
func ship(ctx context.Context, o options) ([]figure, error) {
	dir, err := os.MkdirTemp(o.dir, "sgship")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	progress("starting a Kafka")
	k, err := startBroker(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer k.process.stop()
	if err := fill(ctx, filepath.Join(dir, "spool")); err != nil {
		return nil, err
	}
	var messages []kafka.Message
	var shipped, bare []float64
	for round := -1; round < o.rounds; round++ { // the first warms up Kafka, and gives the messages
		topic := fmt.Sprintf("ship%d.", round+1)
		took, err := k.forward(ctx, filepath.Join(dir, "spool"), topic)
		if err != nil {
			return nil, err
		}
		if round < 0 {
			if messages, err = k.read(ctx, topic+usage.KindUsage); err != nil {
				return nil, err
			}
		}
		plain, err := k.produce(ctx, fmt.Sprint("bare", round+1), messages)
		if err != nil {
			return nil, err
		}
		if round >= 0 {
			shipped, bare = append(shipped, journaled/took.Seconds()), append(bare, journaled/plain.Seconds())
			progress("usage.ship: %.0f records/s, bare producer %.0f", shipped[round], bare[round])
		}
	}
	return []figure{compared("usage.ship", "records/s", "kafka-go's bare producer, messages ready in memory", shipped, bare)}, nil
}

// fill makes the journal that is shipped.
func fill(ctx context.Context, dir string) error {
	s, err := usage.Open(dir, journalSource, usage.Options{Queue: 2 * journaled, SegmentBytes: 16 << 20})
	if err != nil {
		return err
	}
	for i := range journaled {
		s.Append(typicalRecord(i))
	}
	return s.Close(ctx)
}

// forward ships the whole journal, as from a copy of it that was never shipped.
func (k *broker) forward(ctx context.Context, dir, prefix string) (time.Duration, error) {
	copied := filepath.Join(filepath.Dir(dir), prefix)
	segments, err := filepath.Glob(filepath.Join(dir, journalFolder, "*.log"))
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(filepath.Join(copied, journalFolder), 0o700); err != nil {
		return 0, err
	}
	for _, s := range segments {
		if err := os.Link(s, filepath.Join(copied, journalFolder, filepath.Base(s))); err != nil {
			return 0, err
		}
	}
	if err := k.topic(ctx, prefix+usage.KindUsage); err != nil {
		return 0, err
	}
	f, err := usage.NewForwarder(usage.ForwarderConfig{Dir: copied, Source: journalSource, Brokers: []string{k.address}, Prefix: prefix})
	if err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	start := time.Now()
	go func() { defer close(ended); f.Run(running) }()
	for f.Status().Shipped < journaled && err == nil { // Drain looks only now and then
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	took := time.Since(start)
	stop()
	<-ended
	return took, err
}

// produce sends the messages with kafka-go's own producer, as the forwarder sends them.
func (k *broker) produce(ctx context.Context, topic string, messages []kafka.Message) (time.Duration, error) {
	if err := k.topic(ctx, topic); err != nil {
		return 0, err
	}
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{
		Addr: kafka.TCP(k.address), Topic: topic, Balancer: kafka.Murmur2Balancer{Consistent: true}, RequiredAcks: kafka.RequireAll,
		Compression: kafka.Lz4, BatchSize: 1000, BatchTimeout: 5 * time.Millisecond, Transport: transport,
	}
	defer w.Close()
	start := time.Now()
	err := w.WriteMessages(ctx, messages...)
	return time.Since(start), err
}
