package usage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// broker is what the forwarder needs of Kafka. An error says nothing about whether it happened, but for refused ones.
type broker interface {
	// partitions is how many a topic has. A missing topic is made, if that is allowed.
	partitions(ctx context.Context, topic string) (int, error)
	// produce returns nil when all replicas have the events, in their order.
	produce(ctx context.Context, topic string, partition int, events []*event) error
	// reset forgets connections and what is known of the cluster.
	reset()
}

// refused tells whether Kafka will never take these events as they are. (It may take some of them alone.)
func refused(err error) bool {
	var e kafka.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e {
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidMessageSize, kafka.InvalidRecord, kafka.InvalidTimestamp:
		return true
	}
	return false
}

// cluster is the real one.
type cluster struct {
	client    *kafka.Client
	transport *kafka.Transport
	dialer    *dialer
	topic     kafka.TopicConfig // for those that are missing
	create    bool
	security  KafkaSecurity
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func newCluster(c *ForwarderConfig) (*cluster, error) {
	encrypt, login, err := c.Security.Load()
	if err != nil {
		return nil, err
	}
	d := &dialer{dial: c.dial, open: map[net.Conn]bool{}}
	var topics []string
	for _, kind := range shippedKinds {
		topics = append(topics, c.Prefix+kind)
	}
	t := &kafka.Transport{
		Dial: d.dialContext, DialTimeout: min(c.Timeout, 5*time.Second), ClientID: "spokegate",
		TLS: encrypt, SASL: login,
		MetadataTopics: topics, // and not all that the cluster has
	}
	return &cluster{
		client:    &kafka.Client{Addr: kafka.TCP(c.Brokers...), Transport: t, Timeout: c.Timeout},
		transport: t, dialer: d, create: !c.NoCreate, security: c.Security,
		topic: kafka.TopicConfig{NumPartitions: c.Partitions, ReplicationFactor: c.Replicas},
	}, nil
}

func (k *cluster) partitions(ctx context.Context, topic string) (int, error) {
	answer, err := k.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, fmt.Errorf("the broker hangs up on who comes %s; it may want another way: %w", k.security, err)
	}
	if err != nil {
		return 0, err
	}
	for _, t := range answer.Topics {
		switch {
		case t.Name != topic:
		case errors.Is(t.Error, kafka.UnknownTopicOrPartition):
			return 0, k.missing(ctx, topic)
		case t.Error != nil:
			return 0, t.Error
		case len(t.Partitions) > 0:
			return len(t.Partitions), nil
		}
	}
	return 0, kafka.LeaderNotAvailable
}

// missing makes a topic. It always returns an error: a topic that was made can be used a moment later.
func (k *cluster) missing(ctx context.Context, topic string) error {
	if !k.create {
		return errors.New("the topic does not exist: create it, or let the forwarder do so")
	}
	t := k.topic
	t.Topic = topic
	answer, err := k.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{t}})
	if err == nil {
		err = answer.Errors[topic]
	}
	if err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
		return fmt.Errorf("the topic does not exist and cannot be created: %w", err)
	}
	return errMade
}

var errMade = errors.New("the topic was just created")

func (k *cluster) produce(ctx context.Context, topic string, partition int, events []*event) error {
	answer, err := k.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Compression: kafka.Lz4,
		Records: &eventReader{events: events},
	})
	if err != nil {
		return err
	}
	return answer.Error
}

// reset closes every connection, also those on which an answer is overdue: kafka-go would keep them for as long as that.
func (k *cluster) reset() {
	k.transport.CloseIdleConnections()
	k.dialer.closeAll()
}

// eventReader hands events over to kafka-go one by one, without a copy.
type eventReader struct {
	events     []*event
	record     kafka.Record
	key, value bytesReader
}

func (r *eventReader) ReadRecord() (*kafka.Record, error) {
	if len(r.events) == 0 {
		return nil, io.EOF
	}
	e := r.events[0]
	r.events = r.events[1:]
	r.key.Reset(e.key)
	r.value.Reset(e.value)
	r.record = kafka.Record{Key: &r.key, Value: &r.value, Headers: e.headers}
	return &r.record, nil
}

type bytesReader struct{ bytes.Reader }

func (*bytesReader) Close() error { return nil }

// dialer knows the connections that it has made.
type dialer struct {
	dial dialFunc

	mu   sync.Mutex
	open map[net.Conn]bool
}

func (d *dialer) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &dialed{conn, d}
	d.open[c] = true
	return c, nil
}

func (d *dialer) closeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.open {
		_ = c.(*dialed).Conn.Close()
	}
	clear(d.open)
}

type dialed struct {
	net.Conn
	dialer *dialer
}

func (c *dialed) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.open, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}
