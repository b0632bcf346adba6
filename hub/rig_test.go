package hub

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spokegate/spokegate/test/pgtest"
)

var thePostgres pgtest.Server

func TestMain(m *testing.M) {
	if child := os.Getenv("SPOKEGATE_HUB_CHILD"); child != "" {
		os.Exit(runChild(child))
	}
	code := m.Run()
	thePostgres.Close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// clock is a time that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 11, 29, 13, 5, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// opened is a hub that the test closes.
func opened(t testing.TB, cfg Config) *Hub {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

var admin = Actor{Name: "ada", Role: RoleAdmin}

// eventually waits for a fact.
func eventually(t testing.TB, is func() bool) {
	t.Helper()
	for late := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("it does not come")
		}
	}
}

func put(kind Kind, name, body string) Change {
	return Change{Kind: kind, Name: name, Body: []byte(body)}
}

func drop(kind Kind, name string) Change { return Change{Kind: kind, Name: name} }

// must commits changes that are in order.
func must(t testing.TB, h *Hub, changes ...Change) Revision {
	t.Helper()
	r, err := h.Commit(context.Background(), Commit{Actor: admin, Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
