package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// ranksMost bounds the data-parallel ranks of one engine.
	ranksMost = 64
	// defaultBlocks is how many blocks are followed unless configured, about 250 MB.
	defaultBlocks = 2 << 20
)

// Config of a Source.
type Config struct {
	// Endpoint is where the engine publishes its events, as the engine itself was told: tcp://*:PORT and ipc://PATH are the
	// engine's, and any other tcp address is where it connects and we listen. Empty: it publishes none.
	Endpoint string
	// Replay is the engine's replay_endpoint; empty: it has none, and each gap or lost connection costs what is known.
	Replay string
	// Host stands for "*"; empty: 127.0.0.1.
	Host string
	// Ranks are the engine's data-parallel ranks, each a port further; 0: 1.
	Ranks int
	// Topic that the engine publishes under; empty: any.
	Topic string
	// Model; nil: it cannot be read, and Why says so.
	Model *Model
	Why   string
	// BlockSize in tokens that the engine is believed to have; what its events say is right. 0: not known.
	BlockSize uint32
	// MaxBlocks followed; a rank that comes to more is forgotten and begun afresh. 0: two million.
	MaxBlocks  int
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Source follows an engine and announces what it holds.
type Source struct {
	cfg       Config
	feeds     []feed // as they begin
	announcer *announcer
	metrics   *metrics
	server    blocksServer

	mu      sync.Mutex
	seed    uint64
	life    uint64 // counts starts of the engine
	changed chan struct{}
	reasons []string // by feed; why it does not follow
}

// New checks the configuration; nothing is connected before Run. Without an endpoint or a model the Source serves pickers all
// the same, and tells them that it announces nothing, and why.
func New(cfg Config) (*Source, error) {
	cfg.Ranks, cfg.MaxBlocks = cmp.Or(cfg.Ranks, 1), cmp.Or(cfg.MaxBlocks, defaultBlocks)
	if cfg.Ranks < 0 || cfg.Ranks > ranksMost || cfg.MaxBlocks < 0 || int64(cfg.MaxBlocks) > 1<<31 {
		return nil, fmt.Errorf("KV events: 1 to %d ranks and 1 to %d blocks expected", ranksMost, int64(1<<31))
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Replay != "" && cfg.Endpoint == "" {
		return nil, errors.New("KV events: a replay endpoint without the one of the events")
	}
	s := &Source{cfg: cfg, metrics: newMetrics(cfg.Registerer), changed: make(chan struct{})}
	s.announcer = newAnnouncer(cfg.BlockSize, s.metrics.note)
	if cfg.Model != nil {
		s.announcer.model = cfg.Model
	}
	s.server.announcer = s.announcer
	s.metrics.watch(cfg.Registerer, s.announcer, func() float64 { return float64(s.server.followers.Load()) })
	if err := s.plan(); err != nil {
		return nil, fmt.Errorf("KV events: %w", err)
	}
	s.say()
	return s, nil
}

// plan makes the feeds, one a rank.
func (s *Source) plan() error {
	if s.cfg.Endpoint == "" || s.cfg.Model == nil {
		return nil
	}
	for rank := range s.cfg.Ranks {
		f := feed{rank: uint32(rank), fixed: s.cfg.Ranks > 1, topic: s.cfg.Topic, out: s.announcer, metrics: s.metrics, log: s.cfg.Log.With("rank", rank)}
		var err error
		if f.events, err = parseEndpoint(s.cfg.Endpoint, s.cfg.Host, rank); err != nil {
			return err
		}
		if s.cfg.Replay != "" {
			if f.replay, err = replayEndpoint(s.cfg.Replay, s.cfg.Host, rank); err != nil {
				return err
			}
		}
		if !f.events.isPrivate() {
			f.log.Warn("KV events hold prompts, and come over the network in the clear", "endpoint", f.events)
		}
		f.standing = func(reason string) { s.stand(rank, reason) }
		s.feeds = append(s.feeds, f)
	}
	s.reasons = make([]string, len(s.feeds))
	s.wait()
	return nil
}

// wait is how feeds are before they have connected.
func (s *Source) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.feeds {
		s.reasons[i] = "the engine's events are waited for at " + f.events.String()
	}
}

// SetSeed sets the seed of the hashes, one a spoke; 0: none is known. Another seed begins a new epoch.
func (s *Source) SetSeed(seed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seed == 0 || seed == s.seed {
		return
	}
	s.seed = seed
	s.change()
}

// Restarted tells that the engine started anew, and holds nothing of before: a new epoch begins.
func (s *Source) Restarted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life++
	s.change()
}

func (s *Source) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Run follows the engine until ctx ends.
func (s *Source) Run(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		seed, changed := s.seed, s.changed
		s.mu.Unlock()
		epoch, cancel := context.WithCancel(ctx)
		var feeds sync.WaitGroup
		if seed != 0 && len(s.feeds) > 0 {
			s.announcer.reset(seed, s.cfg.MaxBlocks)
			s.wait()
			for _, f := range s.feeds {
				feeds.Go(func() { f.run(epoch) })
			}
		}
		s.say()
		select {
		case <-ctx.Done():
		case <-changed:
		}
		cancel()
		feeds.Wait()
	}
}

// stand takes how a feed is.
func (s *Source) stand(feed int, reason string) {
	s.mu.Lock()
	was := s.reasons[feed]
	s.reasons[feed] = reason
	s.mu.Unlock()
	if was == reason {
		return
	}
	if reason != "" {
		s.cfg.Log.Warn("KV blocks are not announced", "rank", feed, "reason", reason)
	}
	s.say()
}

// say tells pickers why nothing exact is announced, or that it is.
func (s *Source) say() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announcer.setReason(s.reason())
}

func (s *Source) reason() string {
	switch {
	case s.cfg.Endpoint == "":
		return cmp.Or(s.cfg.Why, "the engine publishes no KV events")
	case s.cfg.Model == nil:
		return cmp.Or(s.cfg.Why, "the model's vocabulary is not known")
	case s.seed == 0:
		return "no door has told the seed of the hashes yet"
	}
	for rank, reason := range s.reasons {
		if reason != "" && len(s.reasons) > 1 {
			return fmt.Sprintf("rank %d: %s", rank, reason)
		} else if reason != "" {
			return reason
		}
	}
	return ""
}
