package balance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// KafkaConfig says which cluster to read.
type KafkaConfig struct {
	Brokers []string
	Prefix  string // of the topics ("spokegate.")
	// Security of the connections to them.
	Security usage.KafkaSecurity
}

// Kafka are the topics that forwarders have shipped to.
type Kafka struct {
	cfg    KafkaConfig
	dialer *kafka.Dialer
	parts  []*part
	traits Traits
	total  int64
}

// part is one partition of one topic, and what of it is read.
type part struct {
	topic      string
	id         int
	start, end int64
	proven     int64 // the end a moment earlier: see Item.Fresh
}

const (
	// lead is how much earlier than the range it begins to read, by Kafka's time, which is that of shipping: a worker's record
	// says nothing of when the request was admitted.
	lead = time.Hour
	// slack is more records than one chunk of a forwarder has, whose partitions are acknowledged in any order.
	slack = 4096
	// patience is how long Kafka may take to answer.
	patience = 30 * time.Second
)

// OpenKafka looks how far the topics reach. from is the begin of the range; zero: all that is there.
func OpenKafka(ctx context.Context, cfg KafkaConfig, from time.Time) (*Kafka, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "spokegate."
	}
	encrypt, login, err := cfg.Security.Load()
	if err != nil {
		return nil, err
	}
	transport := &kafka.Transport{TLS: encrypt, SASL: login}
	defer transport.CloseIdleConnections()
	k := &Kafka{
		cfg: cfg, traits: Traits{Whole: from.IsZero(), Slack: slack},
		dialer: &kafka.Dialer{Timeout: patience, DualStack: true, TLS: encrypt, SASLMechanism: login},
	}
	client := &kafka.Client{Addr: kafka.TCP(cfg.Brokers...), Transport: transport, Timeout: patience}
	if err := k.find(ctx, client); err != nil {
		return nil, err
	}
	// The ends twice: what is beyond the first shows that its source is alive, but not that all before it is below the second.
	for _, set := range []func(p *part, o kafka.PartitionOffsets){
		func(p *part, o kafka.PartitionOffsets) { p.proven, p.start = o.LastOffset, o.FirstOffset },
		func(p *part, o kafka.PartitionOffsets) { p.end = o.LastOffset },
	} {
		if err := k.offsets(ctx, client, set, kafka.LastOffsetOf, kafka.FirstOffsetOf); err != nil {
			return nil, err
		}
	}
	if err := k.begin(ctx, client, from); err != nil {
		return nil, err
	}
	for _, p := range k.parts {
		k.total += p.end - p.start
	}
	return k, nil
}

// find lists the partitions. The topic of a kind that nobody ever wrote may be missing.
func (k *Kafka) find(ctx context.Context, c *kafka.Client) error {
	var names []string
	for _, kind := range usage.Kinds() {
		if kind != usage.KindRejected {
			names = append(names, k.cfg.Prefix+kind)
		}
	}
	meta, err := c.Metadata(ctx, &kafka.MetadataRequest{Topics: names})
	if err != nil {
		return fmt.Errorf("ask Kafka for its topics: %w", err)
	}
	for _, t := range meta.Topics {
		if t.Error != nil && !errors.Is(t.Error, kafka.UnknownTopicOrPartition) {
			return fmt.Errorf("topic %s: %w", t.Name, t.Error)
		}
		for _, p := range t.Partitions {
			k.parts = append(k.parts, &part{topic: t.Name, id: p.ID})
		}
	}
	if len(k.parts) == 0 {
		return fmt.Errorf("Kafka has no topic %s*: nothing was ever shipped to it", k.cfg.Prefix)
	}
	return nil
}

// offsets asks for some of every partition.
func (k *Kafka) offsets(ctx context.Context, c *kafka.Client, set func(*part, kafka.PartitionOffsets), which ...func(int) kafka.OffsetRequest) error {
	ask := map[string][]kafka.OffsetRequest{}
	for _, p := range k.parts {
		for _, w := range which {
			ask[p.topic] = append(ask[p.topic], w(p.id))
		}
	}
	answer, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: ask})
	for tries := 0; errors.Is(err, kafka.BrokerNotAvailable) && tries < 20 && pause(ctx, 250*time.Millisecond); tries++ {
		answer, err = c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: ask}) // the client has yet to learn who leads
	}
	if err != nil {
		return fmt.Errorf("ask Kafka for its offsets: %w", err)
	}
	for _, p := range k.parts {
		for _, o := range answer.Topics[p.topic] {
			if o.Partition != p.id {
				continue
			}
			if o.Error != nil {
				return fmt.Errorf("topic %s, partition %d: %w", p.topic, p.id, o.Error)
			}
			set(p, o)
		}
	}
	return nil
}

// pause is false when ctx is done before its end.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// begin decides where to begin, and from when on the topics are whole.
func (k *Kafka) begin(ctx context.Context, c *kafka.Client, from time.Time) error {
	first := map[*part]int64{}
	for _, p := range k.parts {
		first[p] = p.start
	}
	if !from.IsZero() {
		at := from.Add(-lead)
		err := k.offsets(ctx, c, func(p *part, o kafka.PartitionOffsets) {
			p.start = p.end // nothing was shipped since
			for offset := range o.Offsets {
				if offset >= 0 {
					p.start = min(offset, p.end)
				}
			}
		}, func(id int) kafka.OffsetRequest { return kafka.TimeOffsetOf(id, at) })
		if err != nil {
			return err
		}
	}
	for _, p := range k.parts {
		if first[p] == 0 || p.start > first[p] || p.start == p.end {
			continue
		}
		k.traits.Whole = false // older records were removed
		err := k.messages(ctx, &part{topic: p.topic, id: p.id, start: p.start, end: p.start + 1}, func(m kafka.Message) error {
			k.traits.Since = later(k.traits.Since, m.Time)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Traits of what was shipped.
func (k *Kafka) Traits() Traits { return k.traits }

// Read counts its progress in messages.
func (k *Kafka) Read(ctx context.Context, add func(Item) error, progress func(done, total int64)) error {
	var done int64
	for _, p := range k.parts {
		lane := fmt.Sprintf("topic %s, partition %d", p.topic, p.id)
		err := k.messages(ctx, p, func(m kafka.Message) error {
			if done++; progress != nil {
				progress(done, k.total)
			}
			r, err := event(m)
			if err == nil && usage.OutsideBalance(r.Source) { // their checkpoints lie beside others
				return nil
			}
			return add(Item{Record: r, Body: m.Value, Err: err, Lane: lane, Place: fmt.Sprintf("%s, offset %d", lane, m.Offset), Fresh: m.Offset >= p.proven})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *Kafka) messages(ctx context.Context, p *part, each func(kafka.Message) error) error {
	if p.start >= p.end {
		return nil
	}
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: k.cfg.Brokers, Topic: p.topic, Partition: p.id, Dialer: k.dialer, MinBytes: 1, MaxBytes: 16 << 20,
		MaxWait: 500 * time.Millisecond, QueueCapacity: 1000,
	})
	defer r.Close()
	if err := r.SetOffset(p.start); err != nil {
		return err
	}
	for at := p.start; at < p.end; {
		m, err := readOne(ctx, r)
		if err != nil {
			return fmt.Errorf("topic %s, partition %d, offset %d of %d: %w", p.topic, p.id, at, p.end, err)
		}
		if at = m.Offset + 1; at > p.end {
			return nil // what was below the end is gone
		}
		if err := each(m); err != nil {
			return err
		}
	}
	return nil
}

func readOne(ctx context.Context, r *kafka.Reader) (kafka.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.ReadMessage(ctx)
}

// event reads a message: its headers and its value must be of one record.
func event(m kafka.Message) (*usagev1.Record, error) {
	r, err := usage.ParseJSON(m.Value)
	if err != nil {
		return nil, err
	}
	for _, h := range []struct{ key, value string }{{"ce_id", r.Id}, {"ce_source", r.Source}} {
		if got := header(m, h.key); got != h.value {
			return nil, fmt.Errorf("the message says %s %q, its record %q", h.key, got, h.value)
		}
	}
	if n, err := strconv.ParseUint(header(m, "ce_sequence"), 10, 64); err != nil || n != r.Sequence {
		return nil, fmt.Errorf("the message says ce_sequence %q, its record %d", header(m, "ce_sequence"), r.Sequence)
	}
	if string(m.Key) != r.Team {
		return nil, fmt.Errorf("the message's key is %q, its record's team %q", m.Key, r.Team)
	}
	return r, nil
}

func header(m kafka.Message, key string) string {
	for _, h := range m.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}
