package kv

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// defaultBlocks is how many blocks are followed unless configured, about 250 MB.
const defaultBlocks = 2 << 20

// Config of a Source.
type Config struct {
	// Feeds are where the engine publishes, by data-parallel rank; none: it does not.
	Feeds []Feed
	// Topic that the engine publishes under; empty: any.
	Topic string
	// Model; nil: it is not known.
	Model *Model
	// Why there are no feeds, or no model.
	Why string
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
	changed chan struct{}
	reasons []string // by feed; why it does not follow
}

// New checks the configuration; nothing is connected before Run. Without feeds or a model the Source serves pickers all
// the same, and tells them that it announces nothing, and why.
func New(cfg Config) (*Source, error) {
	cfg.MaxBlocks = cmp.Or(cfg.MaxBlocks, defaultBlocks)
	if cfg.MaxBlocks < 0 || int64(cfg.MaxBlocks) > 1<<31 {
		return nil, fmt.Errorf("KV events: 1 to %d blocks expected", int64(1<<31))
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
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
	if s.cfg.Model == nil {
		return nil
	}
	for i, c := range s.cfg.Feeds {
		f := feed{rank: uint32(i), fixed: len(s.cfg.Feeds) > 1, listens: c.Listen, topic: s.cfg.Topic, out: s.announcer, metrics: s.metrics,
			log: s.cfg.Log.With("rank", i)}
		var err error
		if f.events, err = parseEndpoint(c.Events); err != nil {
			return err
		}
		if c.Replay != "" {
			if f.replay, err = parseEndpoint(c.Replay); err != nil {
				return err
			}
		}
		if !f.events.isPrivate() {
			f.log.Warn("KV events hold prompts, and come over the network in the clear", "from", f.events.String())
		}
		f.standing = func(reason string) { s.stand(i, reason) }
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
	s.announcer.setReason(s.reason(), len(s.cfg.Feeds) > 0 && s.seed != 0)
}

func (s *Source) reason() string {
	switch {
	case len(s.cfg.Feeds) == 0:
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
