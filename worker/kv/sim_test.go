package kv

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/router/blocktree"
	"github.com/spokegate/spokegate/sim"
)

// startSim runs the simulator, whose publisher is a ZeroMQ library. ask sends it a chat of one message, and gives the answer.
func startSim(t *testing.T, dir string, cacheBlocks int) (ask func(content, salt string) string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	rates := sim.DefaultRates()
	rates.CacheBlocks = cacheBlocks
	socket := filepath.Join(dir, "s")
	go func() {
		done <- sim.Run(ctx, sim.Config{Listen: "unix:" + socket, Rates: rates, KVEvents: "ipc://" + filepath.Join(dir, "e"),
			KVReplay: "ipc://" + filepath.Join(dir, "r"), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	}()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	until(t, "the simulator does not listen", func() bool {
		c, err := net.Dial("unix", socket) // its file is there a moment before anybody listens
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	return func(content, salt string) string {
		t.Helper()
		body, _ := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": content}}, "max_tokens": 20, "cache_salt": salt})
		resp, err := (&http.Client{Transport: transport}).Post("http://sim/v1/chat/completions", "application/json", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Choices) != 1 {
			t.Fatalf("%v, %d", err, resp.StatusCode)
		}
		return answer.Choices[0].Message.Content
	}
}

// rendered is how the template of the simulator's model writes one message, with its answer behind it.
func rendered(content, answer string) string {
	return "<|user|>\n" + content + "<|end|>\n<|assistant|>\n" + answer
}

// depth says how many blocks from the start of a text a picker finds, as a picker looks for them.
func (p *picker) depth(text string, root uint64) int {
	n, parent := 0, uint64(0)
	for {
		found := false
		for _, b := range p.blocks {
			if b.Parent == parent && int(b.Length) <= len(text) && (parent != 0 || b.Root == root) && b.Hash == xxh3.HashSeed([]byte(text[:b.Length]), testSeed) {
				text, parent, found = text[b.Length:], b.Key, true
				n++
				break
			}
		}
		if !found {
			return n
		}
	}
}

func TestSimulatorsBlocksAreTheBytesOfItsPrompts(t *testing.T) {
	dir := shortDir(t)
	ask := startSim(t, dir, 40)
	first := strings.Repeat("all that was said before the shim came. ", 10)
	answer := ask(first, "")
	s := newSource(t, nil, func(c *Config) {
		c.Feeds = []Feed{{Events: "ipc://" + filepath.Join(dir, "e"), Replay: "ipc://" + filepath.Join(dir, "r")}}
	})
	f := follow(t, serve(t, s))
	text := rendered(first, answer)
	f.see("the whole blocks of a prompt and its answer", func(p *picker) bool { return p.depth(text, 0) == len(text)/64 })
	second := first + "And more."
	salted := rendered(second, ask(second, "tenant-a"))
	f.see("the blocks under a salt apart", func(p *picker) bool {
		return p.depth(salted, blocktree.Root(testSeed, "", "tenant-a")) == len(salted)/64 && p.depth(salted, 0) == len(first)/64
	})
	for i := range 20 { // which evicts all of before
		ask(fmt.Sprint(i, first), "")
	}
	f.see("that the first ones are evicted", func(p *picker) bool {
		return p.depth(text, 0) == 0 && p.depth(salted, blocktree.Root(testSeed, "", "tenant-a")) == 0 && len(p.blocks) == 40
	})
}
