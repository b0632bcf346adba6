package usage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDrainWaitsForKafka(t *testing.T) {
	dir, b := t.TempDir(), newFakeBroker(1, 100)
	s := requestJournal(t, dir, 5, Options{})
	f, stop := forward(t, fakeConfig(t, dir, b))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := f.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drained into a dead broker: %v", err)
	}
	until(t, "an error", func() bool { return f.Status().Err != "" })
	if st := f.Status(); st.Since.IsZero() || st.LagBytes == 0 {
		t.Errorf("%+v", st)
	}
	stop()
	_ = s.Close(context.Background())
	tearTail(t, dir) // an unfinished line is nothing to wait for
	b.percent = 0
	f, _ = forward(t, fakeConfig(t, dir, b))
	drain(t, f)
	until(t, "a lag of 0", func() bool { st := f.Status(); return st.LagBytes == 0 && st.Err == "" })
}

// A folder that cannot be had is told, with what waits in it, and tried again until it can.
func TestForwarderWaitsForItsFolder(t *testing.T) {
	for _, c := range []struct {
		name, says string
		block      func(t *testing.T, cfg ForwarderConfig) (unblock func())
	}{
		{"another forwarder", "in use by another process", func(t *testing.T, cfg ForwarderConfig) func() {
			cfg.broker = newFakeBroker(2, 100) // it ships nothing
			f, stop := forward(t, cfg)
			until(t, "the other one is at it", func() bool { return strings.Contains(f.Status().Err, errBroker.Error()) })
			return stop
		}},
		{"no lock can be made", "shipped.lock", func(t *testing.T, cfg ForwarderConfig) func() {
			path := filepath.Join(cfg.Dir, "door_main", "shipped.lock")
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Remove(path) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			requestJournal(t, dir, 5, Options{})
			cfg := fakeConfig(t, dir, newFakeBroker(1, 0))
			unblock := c.block(t, cfg)
			f, _ := forward(t, cfg)
			until(t, "it says why it does not ship", func() bool { return strings.Contains(f.Status().Err, c.says) })
			if st := f.Status(); st.Since.IsZero() || st.LagBytes == 0 || st.Shipped != 0 {
				t.Errorf("%+v", st)
			}
			unblock()
			drain(t, f)
			if st := f.Status(); st.Err != "" || st.Shipped != 10 {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestNewForwarderRefuses(t *testing.T) {
	for _, c := range []struct {
		cfg  ForwarderConfig
		want string
	}{
		{ForwarderConfig{Source: "..", Brokers: []string{"a:1"}}, "journal source"},
		{ForwarderConfig{Source: "door/main"}, "no Kafka broker"},
		{ForwarderConfig{Source: "door/main", Brokers: []string{"a:1", "b"}}, `"b"`},
	} {
		if _, err := NewForwarder(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}
