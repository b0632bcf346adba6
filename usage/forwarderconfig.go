package usage

import (
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ForwarderConfig says what to ship, and where to. Zero values are the defaults.
type ForwarderConfig struct {
	// Dir and Source are those that the spool is opened with, see [Open].
	Dir, Source string
	// Brokers of the cluster, host:port each. One that answers is enough to find the others.
	Brokers []string
	// Security of the connections to them.
	Security KafkaSecurity
	// Prefix of the topics ("spokegate."): behind it stands the kind of record, such as spokegate.usage.
	Prefix string
	// NoCreate: a topic that is missing is waited for, and not created.
	NoCreate bool
	// Partitions and Replicas of a topic that is created (as the cluster is set up to do by default).
	Partitions, Replicas int
	// KeepFor and KeepBytes are how long segments stay that were shipped whole, and how much of them, for whoever reads the
	// journal on this disk (24 h, 256 MiB; the earlier of both counts). Below 0: they go at once. KeepBytes and one segment
	// must fit into the MaxBytes of the spool.
	KeepFor   time.Duration
	KeepBytes int64
	// AsideBytes bounds the file of what cannot be shipped (64 MiB). When it is full, shipping stops until a human moves it.
	AsideBytes int64
	// Timeout is how long Kafka may take to answer a request before it is sent again (10 s).
	Timeout time.Duration
	// Registerer takes the metrics of one forwarder; nil: none.
	Registerer prometheus.Registerer
	// Log gets a line when shipping begins to fail, each minute while it does, and when it goes on; nil: none.
	Log *slog.Logger

	// For tests.
	dial          dialFunc
	broker        broker
	poll          time.Duration // how often the journal is looked at when it had nothing more
	tidy          time.Duration // how often the position is saved and the rest measured
	wait, waitMax time.Duration // after a failure; the first doubles up to the second
	chunkBytes    int           // read at a time
	requestBytes  int           // of the events in one request
	save          func(dir string, p position) error
}

// Bounds of one request: the upper one is well below what Kafka takes by default (1 MiB), also uncompressed.
const (
	maxRequest = 768 << 10
	minRequest = 32 << 10
)

func (c ForwarderConfig) withDefaults() ForwarderConfig {
	if c.Prefix == "" {
		c.Prefix = "spokegate."
	}
	defaultIfZero(&c.Partitions, -1) // Kafka's way to say: your default
	defaultIfZero(&c.Replicas, -1)
	defaultIfZero(&c.KeepFor, 24*time.Hour)
	defaultIfZero(&c.KeepBytes, 256<<20)
	setDefault(&c.AsideBytes, 64<<20)
	setDefault(&c.Timeout, 10*time.Second)
	setDefault(&c.poll, 100*time.Millisecond)
	setDefault(&c.tidy, 250*time.Millisecond)
	setDefault(&c.wait, 100*time.Millisecond)
	setDefault(&c.waitMax, 5*time.Second)
	setDefault(&c.chunkBytes, 4<<20)
	setDefault(&c.requestBytes, maxRequest)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.dial == nil {
		c.dial = new(net.Dialer).DialContext
	}
	if c.save == nil {
		c.save = savePosition
	}
	return c
}

func defaultIfZero[N ~int | ~int64](n *N, to N) {
	if *n == 0 {
		*n = to
	}
}
