package sim

import (
	"context"
	"encoding/json"
	"math/rand"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Against a slow and obvious cache: a list of hashes, newest first.
func TestCacheAgainstOracle(t *testing.T) {
	for seed := range int64(50) {
		rnd := rand.New(rand.NewSource(seed))
		capacity := rnd.Intn(12)
		c := newCache(capacity, func() {})
		var oracle []uint64
		front := func(h uint64) {
			for i, o := range oracle {
				if o == h {
					oracle = append(oracle[:i], oracle[i+1:]...)
					break
				}
			}
			oracle = append([]uint64{h}, oracle...)
		}
		for range 300 {
			chain := make([]uint64, rnd.Intn(8))
			for i := range chain {
				chain[i] = uint64(i*4 + rnd.Intn(3))
			}
			if rnd.Intn(2) == 0 {
				c.insert(sequence{chain: chain})
				for i := min(len(chain), capacity) - 1; i >= 0; i-- {
					front(chain[i])
				}
				oracle = oracle[:min(len(oracle), capacity)]
				continue
			}
			want := 0
			for want < len(chain) && has(oracle, chain[want]) {
				want++
			}
			for i := want - 1; i >= 0; i-- {
				front(chain[i])
			}
			if got := c.match(chain); got != want {
				t.Fatalf("seed %d: match %v = %d, the oracle says %d of %v", seed, chain, got, want, oracle)
			}
		}
		if c.len() != len(oracle) || c.len() > capacity {
			t.Fatalf("seed %d: %d blocks, the oracle has %d, capacity %d", seed, c.len(), len(oracle), capacity)
		}
	}
}

func has(list []uint64, h uint64) bool {
	for _, o := range list {
		if o == h {
			return true
		}
	}
	return false
}

func TestParseRates(t *testing.T) {
	for _, c := range []struct{ in, err string }{
		{`{}`, ""},
		{`{"decode_tokens_per_second":5}`, ""},
		{`{"decode_tokens_per_secnd":5}`, "unknown name"},
		{`{"decode_tokens_per_second":0}`, "above 0"},
		{`{"max_running":0}`, "1 or more"},
		{`{} {}`, "after top-level value"},
		{`null`, "object expected"},
		{`{"overhead_ms":null}`, "or null"},
		{`{"Max_Running":1}`, "unknown name"},
		{`[]`, "cannot unmarshal"},
	} {
		r, err := ParseRates([]byte(c.in))
		if c.err == "" && (err != nil || r.CacheBlocks != DefaultRates().CacheBlocks) {
			t.Errorf("%s: %v %+v", c.in, err, r)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, expected %q", c.in, err, c.err)
		}
	}
	if err := DefaultRates().validate(); err != nil {
		t.Error(err)
	}
}

// FuzzParseRates: what is accepted is one object of known names, and says what the rates then are.
func FuzzParseRates(f *testing.F) {
	for _, s := range []string{`{}`, `null`, `{"overhead_ms":0.5,"cache_blocks":0}`, `{"max_running":1,"max_Running":2}`, `{"context_tokens":1e3}`, `{"decode_slowdown":-0}`, `{"overhead_ms":null} `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRates(data)
		if err != nil {
			return
		}
		var given map[string]*float64
		if err := json.Unmarshal(data, &given); err != nil || given == nil || r.validate() != nil {
			t.Fatalf("accepted: %v, %v", err, r.validate())
		}
		def := DefaultRates()
		for name, field := range map[string][2]float64{
			"prefill_tokens_per_second": {r.PrefillTokensPerSecond, def.PrefillTokensPerSecond},
			"decode_tokens_per_second":  {r.DecodeTokensPerSecond, def.DecodeTokensPerSecond},
			"decode_slowdown":           {r.DecodeSlowdown, def.DecodeSlowdown},
			"overhead_ms":               {r.OverheadMS, def.OverheadMS},
			"cache_blocks":              {float64(r.CacheBlocks), float64(def.CacheBlocks)},
			"max_running":               {float64(r.MaxRunning), float64(def.MaxRunning)},
			"context_tokens":            {float64(r.ContextTokens), float64(def.ContextTokens)},
		} {
			want := field[1]
			if v := given[name]; v != nil {
				want = *v
			}
			if delete(given, name); field[0] != want {
				t.Errorf("%s is %v, want %v", name, field[0], want)
			}
		}
		if len(given) > 0 {
			t.Errorf("unknown names: %v", given)
		}
	})
}

func TestSlowdown(t *testing.T) {
	c := newClock(Rates{DecodeTokensPerSecond: 100, DecodeSlowdown: 0.5, MaxRunning: 4})
	c.running.Store(3)
	if got := c.step(); got != 20*time.Millisecond {
		t.Errorf("three running: a token takes %v", got)
	}
}

func FuzzSample(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":["null","array"],"items":{"type":"number","minimum":3},"minItems":2}}}`)
	f.Add(`{"$ref":"#"}`)
	f.Add(`{"anyOf":[{"const":1}]}`)
	f.Fuzz(func(t *testing.T, in string) {
		if !json.Valid([]byte(in)) {
			return
		}
		if out := sample(json.RawMessage(in)); !json.Valid([]byte(out)) {
			t.Errorf("%s gives %s", in, out)
		}
	})
}

func FuzzScript(f *testing.F) {
	f.Add(uint64(1), int64(20), "tor", "")
	f.Add(uint64(2), int64(-1), "x", `{"a":1}`)
	f.Fuzz(func(t *testing.T, seed uint64, most int64, stop, fixed string) {
		a := ask{max: min(most, 5000), room: 10_000, stops: []string{stop}}
		s := talk(seed, a)
		if fixed != "" {
			s = recite(fixed, a)
		}
		text := s.text(s.tokens)
		if int64(len(text)) != s.length || s.tokens > 10_000 || stop != "" && strings.Contains(text, stop) {
			t.Errorf("%+v: %q", s, text)
		}
	})
}

func TestRunOnASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, Config{Listen: "unix:" + path, Models: []string{"m"}}) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for {
		resp, err := client.Get("http://sim/health")
		if err == nil {
			resp.Body.Close()
			break
		}
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Run(context.Background(), Config{Listen: "unix:" + file, Models: []string{"m"}}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the way: %v", err)
	}
}
