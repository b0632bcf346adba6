package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// TestExactPicks: a conversation goes back to the worker that announced it, and what is believed of that worker is what its
// engine reports; a worker whose engine dies is known to hold nothing, and nothing stops for it.
func TestExactPicks(t *testing.T) {
	t.Parallel()
	lab.needEnvoy(t)
	u, err := startUp("exact", upOptions{policy: simPolicy(), workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := u.stop(); err != nil {
			t.Error(err)
		}
	}()
	u.opsSays(t, "/readyz", "of 2 of 2 it is known exactly what they hold")
	c := &conversation{t: t, up: u}
	c.say("system", strings.Repeat("You are careful. ", 300))
	first := c.turn()
	if cached := first.GetCachedTokens(); cached != 0 {
		t.Errorf("%d tokens of a new conversation are cached", cached)
	}
	for range 3 {
		if rec := c.turn(); rec.Worker != first.Worker || rec.GetCachedTokens() < 1000 {
			t.Errorf("the conversation of %s goes on at %s, with %d tokens cached", first.Worker, rec.Worker, rec.GetCachedTokens())
		}
	}

	engine := u.engineOf(t, first.Worker)
	if err := syscall.Kill(engine.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, factPatience, func() error {
		if n := u.metric(t, "spokegate_picker_blocks"); n != 0 {
			return fmt.Errorf("%v blocks are known of an engine that is gone", n)
		}
		return nil
	})
	u.opsSays(t, "/readyz", "of 2 of 2 it is known exactly what they hold")
	second := c.turn()
	if second.GetCachedTokens() != 0 {
		t.Errorf("%d tokens are cached at %s", second.GetCachedTokens(), second.Worker)
	}
	if rec := c.turn(); rec.Worker != second.Worker || rec.GetCachedTokens() < 1000 {
		t.Errorf("the conversation of %s goes on at %s, with %d tokens cached", second.Worker, rec.Worker, rec.GetCachedTokens())
	}
	if n := u.metric(t, "spokegate_picker_parted"); n != 0 {
		t.Errorf("%v answers parted from what was announced", n)
	}
}

// conversation is a chat that goes on.
type conversation struct {
	t        *testing.T
	up       *up
	messages []map[string]string
}

func (c *conversation) say(role, content string) {
	c.messages = append(c.messages, map[string]string{"role": role, "content": content})
}

// turn asks once more, wants that what was believed of the worker's cache is what its engine reports, and waits until what the
// worker then holds is known.
func (c *conversation) turn() *usagev1.Record {
	c.t.Helper()
	c.say("user", fmt.Sprintf("Question %d: what next? ", len(c.messages)))
	body, err := json.Marshal(map[string]any{"model": "sim-small", "max_tokens": 2, "messages": c.messages})
	if err != nil {
		c.t.Fatal(err)
	}
	chosen, reported, held := c.stage("chosen"), c.stage("reported"), c.up.metric(c.t, "spokegate_picker_blocks")
	rec := c.up.ledger.usage(c.t, c.up.ok(c.t, post(c.up.key("main"), "/v1/chat/completions", string(body))).admission())
	c.say("assistant", strings.Repeat("As it was written before. ", 20))
	cached := rec.GetCachedTokens()
	eventually(c.t, factPatience, func() error {
		if n := c.stage("reported") - reported; n != float64(cached) {
			return fmt.Errorf("%v tokens are counted as reported, of %d", n, cached)
		}
		if c.up.metric(c.t, "spokegate_picker_blocks") <= held {
			return fmt.Errorf("the worker has announced nothing")
		}
		return nil
	})
	if n := c.stage("chosen") - chosen; n != float64(cached) {
		c.t.Errorf("%v tokens were believed to be cached, and %d were", n, cached)
	}
	return rec
}

// stage reads how many tokens were in a cache, by one stage; 0 where it is not counted yet.
func (c *conversation) stage(name string) float64 {
	c.t.Helper()
	series := fmt.Sprintf(`spokegate_pick_cached_tokens_total{endpoint="sim",stage="%s"} `, name)
	for s := bufio.NewScanner(strings.NewReader(c.up.page(c.t, "/metrics"))); s.Scan(); {
		if value, is := strings.CutPrefix(s.Text(), series); is {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				c.t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// engineOf is the engine of a worker, by its address.
func (u *up) engineOf(t *testing.T, worker string) process {
	t.Helper()
	var fleet struct {
		Workers []struct{ Name, Address string }
	}
	if err := json.Unmarshal([]byte(u.page(t, "/fleet")), &fleet); err != nil {
		t.Fatal(err)
	}
	for _, engine := range u.role("sim") {
		for _, w := range fleet.Workers {
			if w.Address == worker && strings.Contains(engine.flag("listen"), "/engine-"+w.Name+"/") {
				return engine
			}
		}
	}
	t.Fatalf("%s has no engine among %v", worker, u.role("sim"))
	return process{}
}
