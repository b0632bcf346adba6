package usage

import (
	"context"
	"errors"
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
	if st := f.Status(); st.Err == "" || st.Since.IsZero() || st.LagBytes == 0 {
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

func TestSecondForwarderIsRefused(t *testing.T) {
	dir := t.TempDir()
	cfg := fakeConfig(t, dir, newFakeBroker(1, 0))
	first, _ := forward(t, cfg)
	drain(t, first)
	second, err := NewForwarder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("two forwarders: %v", err)
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
