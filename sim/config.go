package sim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
)

// BlockTokens is the size of a cache block, and TokenBytes the size of a token: fixed, so that tests can count.
const (
	BlockTokens = 16
	TokenBytes  = 4
)

// Config is one simulated engine.
type Config struct {
	// Listen is "unix:/path" or "host:port".
	Listen string
	// Models are the names served; empty: every name.
	Models []string
	// RatesFile is read by New; empty: Rates counts.
	RatesFile string
	// Rates; the zero value means DefaultRates.
	Rates Rates
	// Ranks are the data-parallel ranks, each with a block cache of its own, among which the header x-data-parallel-rank chooses;
	// they share the rest. 0: one.
	Ranks int
	// KeepRequests bounds the account of ended requests, oldest out first. 0: 10,000.
	KeepRequests int
	// MaxBody bounds a request body in bytes. 0: 64 MiB.
	MaxBody int64
	// KVEvents is the ZeroMQ address where Run publishes what the block cache stores and evicts, and KVReplay where the past is
	// asked for: tcp://HOST:PORT or ipc://PATH. Empty: nowhere. The ranks from 1 on have addresses of their own, which end with
	// _dp1 and so on.
	KVEvents, KVReplay string
	// Log; nil: slog.Default().
	Log *slog.Logger
}

// Rates say how fast the engine is. The file form is one JSON object of these names; what is absent keeps its default,
// an unknown name is an error.
type Rates struct {
	// PrefillTokensPerSecond is shared: prompts are prefilled one after the other. Cached tokens cost nothing.
	PrefillTokensPerSecond float64 `json:"prefill_tokens_per_second"`
	// DecodeTokensPerSecond of one stream alone on the engine.
	DecodeTokensPerSecond float64 `json:"decode_tokens_per_second"`
	// DecodeSlowdown: with r requests running a token takes (1 + DecodeSlowdown × (r−1)) times as long.
	DecodeSlowdown float64 `json:"decode_slowdown"`
	// OverheadMS is spent once a request, before prefill, in milliseconds.
	OverheadMS float64 `json:"overhead_ms"`
	// CacheBlocks is the capacity of the block cache. 0: nothing is ever cached.
	CacheBlocks int `json:"cache_blocks"`
	// MaxRunning requests at once; more wait in line.
	MaxRunning int `json:"max_running"`
	// ContextTokens bounds prompt and answer together.
	ContextTokens int64 `json:"context_tokens"`
}

// DefaultRates are of the order of one large accelerator with a small model.
func DefaultRates() Rates {
	return Rates{
		PrefillTokensPerSecond: 100_000,
		DecodeTokensPerSecond:  200,
		DecodeSlowdown:         0.01,
		OverheadMS:             2,
		CacheBlocks:            65_536,
		MaxRunning:             256,
		ContextTokens:          16 << 20,
	}
}

// LoadRates reads a rate file.
func LoadRates(path string) (Rates, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Rates{}, fmt.Errorf("rate file: %w", err)
	}
	r, err := ParseRates(data)
	if err != nil {
		return Rates{}, fmt.Errorf("rate file %s: %w", path, err)
	}
	return r, nil
}

// ParseRates reads the file form over the defaults.
func ParseRates(data []byte) (Rates, error) {
	r := DefaultRates()
	names, err := json.Marshal(r)
	if err := cmp.Or(err, json.Unmarshal(data, &r)); err != nil {
		return Rates{}, err
	}
	// Go takes names in any case for the same: what is given is compared by itself.
	var known, given map[string]json.RawMessage
	if err := cmp.Or(json.Unmarshal(names, &known), json.Unmarshal(data, &given)); err != nil {
		return Rates{}, err
	}
	if given == nil {
		return Rates{}, errors.New("a JSON object expected")
	}
	for name, value := range given {
		if known[name] == nil || string(value) == "null" {
			return Rates{}, fmt.Errorf("unknown name %q, or null", name)
		}
	}
	return r, r.validate()
}

func (r Rates) validate() error {
	switch {
	case !(r.PrefillTokensPerSecond > 0):
		return errors.New("prefill_tokens_per_second: above 0 expected")
	case !(r.DecodeTokensPerSecond > 0):
		return errors.New("decode_tokens_per_second: above 0 expected")
	case !(r.DecodeSlowdown >= 0):
		return errors.New("decode_slowdown: 0 or more expected")
	case !(r.OverheadMS >= 0):
		return errors.New("overhead_ms: 0 or more expected")
	case r.CacheBlocks < 0:
		return errors.New("cache_blocks: 0 or more expected")
	case r.MaxRunning < 1:
		return errors.New("max_running: 1 or more expected")
	case r.ContextTokens < 2:
		return errors.New("context_tokens: 2 or more expected")
	}
	return nil
}

func (c Config) withDefaults() (Config, error) {
	if c.Rates == (Rates{}) {
		c.Rates = DefaultRates()
	}
	if c.RatesFile != "" {
		r, err := LoadRates(c.RatesFile)
		if err != nil {
			return c, err
		}
		c.Rates = r
	}
	c.Ranks = max(c.Ranks, 1)
	if c.KeepRequests == 0 {
		c.KeepRequests = 10_000
	}
	if c.MaxBody == 0 {
		c.MaxBody = 64 << 20
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, c.Rates.validate()
}
