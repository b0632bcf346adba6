package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/spokegate/spokegate/usage"
)

// KafkaConfig says which cluster to read.
type KafkaConfig struct {
	Brokers  []string
	Prefix   string // of the topics ("spokegate.")
	Security usage.KafkaSecurity
	Log      *slog.Logger
}

// Kafka are the topics of admitted, served, usage and balance. No group of consumers is used: a place is an offset, kept
// with what was counted up to it.
type Kafka struct {
	cfg    KafkaConfig
	client *kafka.Client
	dialer *kafka.Dialer
	idle   func()

	mu      sync.Mutex
	parts   map[string]*part // by lane
	looked  time.Time
	skipped uint64
	failed  string // why the last look failed
}

// part is a partition that is read.
type part struct {
	topic string
	id    int
	next  int64 // guarded by Kafka.mu
	end   int64 // as of the last look; guarded
	err   string
	stop  func() // ends its reader and waits for it
}

const (
	// kafkaEvery is how often it looks for new topics and partitions, and how far they reach.
	kafkaEvery = 5 * time.Second
	// kafkaPatience is how long Kafka may take to answer.
	kafkaPatience = 10 * time.Second
)

// kafkaKinds are those whose topics are read.
var kafkaKinds = []string{usage.KindAdmitted, usage.KindServed, usage.KindUsage, usage.KindBalance}

// NewKafka checks the configuration; nothing is read before Follow.
func NewKafka(cfg KafkaConfig) (*Kafka, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "spokegate."
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	encrypt, login, err := cfg.Security.Load()
	if err != nil {
		return nil, err
	}
	t := &kafka.Transport{TLS: encrypt, SASL: login, ClientID: "spokegate-ledger"}
	return &Kafka{
		cfg: cfg, parts: map[string]*part{}, idle: t.CloseIdleConnections,
		client: &kafka.Client{Addr: kafka.TCP(cfg.Brokers...), Transport: t, Timeout: kafkaPatience},
		dialer: &kafka.Dialer{Timeout: kafkaPatience, DualStack: true, TLS: encrypt, SASLMechanism: login, ClientID: "spokegate-ledger"},
	}, nil
}

// Status is how far it is.
func (k *Kafka) Status() FeedStatus {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := FeedStatus{Looked: k.looked, Skipped: k.skipped, Err: k.failed}
	for _, p := range k.parts {
		s.Pending += max(0, p.end-p.next)
		if s.Err == "" {
			s.Err = p.err
		}
	}
	return s
}

// Follow reads every partition on until ctx is done. Kafka away, or a topic that is not there yet, is tried again.
func (k *Kafka) Follow(ctx context.Context, places map[string]string, items chan<- Item) error {
	defer k.idle()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		tick := time.NewTicker(kafkaEvery)
		defer tick.Stop()
		for {
			k.noteLook(ctx, k.look(ctx, g, places, items))
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

func (k *Kafka) noteLook(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil:
		k.looked, k.failed = time.Now(), ""
		return
	case k.failed == "":
		k.cfg.Log.Error("Kafka does not tell how far its topics reach; it is asked again", "err", err)
	}
	k.failed = err.Error()
}

// look finds partitions, and begins to read those that are new, or were made anew.
func (k *Kafka) look(ctx context.Context, g *errgroup.Group, places map[string]string, items chan<- Item) error {
	topics := make([]string, len(kafkaKinds))
	for i, kind := range kafkaKinds {
		topics[i] = k.cfg.Prefix + kind
	}
	meta, err := k.client.Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
	if err != nil {
		return fmt.Errorf("ask Kafka for its topics: %w", err)
	}
	for _, t := range meta.Topics {
		if t.Error != nil && !errors.Is(t.Error, kafka.UnknownTopicOrPartition) { // nobody ever wrote to it
			return fmt.Errorf("topic %s: %w", t.Name, t.Error)
		}
		ask := make([]kafka.OffsetRequest, 0, 2*len(t.Partitions))
		for _, p := range t.Partitions {
			ask = append(ask, kafka.FirstOffsetOf(p.ID), kafka.LastOffsetOf(p.ID))
		}
		if len(ask) == 0 {
			continue
		}
		ends, err := k.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{t.Name: ask}})
		if err != nil {
			return fmt.Errorf("ask Kafka for its offsets: %w", err)
		}
		for _, o := range ends.Topics[t.Name] {
			if o.Error != nil {
				return fmt.Errorf("topic %s, partition %d: %w", t.Name, o.Partition, o.Error)
			}
			k.extent(ctx, g, fmt.Sprintf("kafka %s %s %d", meta.ClusterID, t.Name, o.Partition), t.Name, o, places, items)
		}
	}
	return nil
}

// extent takes in how far a partition reaches.
func (k *Kafka) extent(ctx context.Context, g *errgroup.Group, lane, topic string, o kafka.PartitionOffsets, places map[string]string, items chan<- Item) {
	k.mu.Lock()
	p := k.parts[lane]
	if p != nil {
		p.end = o.LastOffset
		again := p.next > p.end
		k.mu.Unlock()
		if !again {
			return
		}
		p.stop()
		k.mu.Lock()
	} else {
		p = &part{topic: topic, id: o.Partition, end: o.LastOffset, next: o.FirstOffset}
		if at, err := strconv.ParseInt(places[lane], 10, 64); err == nil {
			p.next = at
		}
		k.parts[lane] = p
	}
	defer k.mu.Unlock()
	if p.next > p.end { // the topic was made anew, or has lost its end: what is counted already has its ids
		k.cfg.Log.Warn("a partition ends before the place up to which it was read; it is read from its beginning", "lane", lane, "place", p.next, "end", p.end)
		p.next = o.FirstOffset
	}
	if o.FirstOffset > p.next {
		k.gap(lane, p.next, o.FirstOffset)
		p.next = o.FirstOffset
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	p.stop = func() { cancel(); <-ended }
	from := p.next
	g.Go(func() error {
		defer close(ended)
		defer cancel()
		k.read(ctx, lane, p, from, items)
		return nil
	})
}

// gap notes offsets that nobody can read any more. The caller holds k.mu.
func (k *Kafka) gap(lane string, from, to int64) {
	k.skipped += uint64(to - from)
	k.cfg.Log.Error("records were removed from Kafka before they were counted", "lane", lane, "from", from, "to", to)
}

// read delivers one partition.
func (k *Kafka) read(ctx context.Context, lane string, p *part, from int64, items chan<- Item) {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: k.cfg.Brokers, Topic: p.topic, Partition: p.id, Dialer: k.dialer, MinBytes: 1, MaxBytes: 8 << 20,
		MaxWait: 500 * time.Millisecond, QueueCapacity: 100, ReadBackoffMin: 50 * time.Millisecond,
	})
	defer r.Close()
	err := r.SetOffset(from)
	for ctx.Err() == nil {
		var m kafka.Message
		if err == nil {
			m, err = r.ReadMessage(ctx)
		}
		k.advance(lane, p, m, err, ctx)
		if err != nil {
			err = nil // the reader tries by itself
			pause(ctx, time.Second)
			continue
		}
		it := Item{Lane: lane, Place: strconv.FormatInt(m.Offset+1, 10), Where: fmt.Sprintf("topic %s, partition %d, offset %d", p.topic, p.id, m.Offset)}
		it.Record, it.Err = usage.ParseJSON(m.Value)
		select {
		case items <- it:
		case <-ctx.Done():
		}
	}
}

func (k *Kafka) advance(lane string, p *part, m kafka.Message, err error, ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p.err = ""
	if err != nil {
		p.err = fmt.Sprintf("topic %s, partition %d: %v", p.topic, p.id, err)
		return
	}
	if m.Offset > p.next {
		k.gap(lane, p.next, m.Offset)
	}
	p.next = m.Offset + 1
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
