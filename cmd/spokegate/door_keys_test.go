package main

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// TestKeysAreAnnouncedBeforeTheyAreUsed: workers have rotationLead to hear of a key, and those that come late hear of the one
// before.
func TestKeysAreAnnouncedBeforeTheyAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := identity.NewMinter("door-1")
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- rotateKeys(ctx, m, time.Hour, time.Minute, 2*time.Minute, slog.New(slog.DiscardHandler))
		}()
		at := time.Now()
		for _, step := range []struct {
			after time.Duration
			want  string
		}{
			{58 * time.Minute, "[door-1]"}, {59*time.Minute + 30*time.Second, "[door-1 door-1#2]"}, {61 * time.Minute, "[door-1#2 door-1]"},
			{62*time.Minute + 30*time.Second, "[door-1#2]"},
			{119*time.Minute + 30*time.Second, "[door-1#2 door-1#3]"}, {121 * time.Minute, "[door-1#3 door-1#2]"},
		} {
			time.Sleep(time.Until(at.Add(step.after)))
			synctest.Wait()
			keys, _ := m.Keys()
			var ids []string
			for _, k := range keys {
				ids = append(ids, k.ID)
			}
			if got := fmt.Sprint(ids); got != step.want {
				t.Errorf("after %v: %s, want %s", step.after, got, step.want)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := rotateKeys(context.Background(), m, 0, time.Minute, time.Minute, nil); err != nil {
			t.Errorf("never: %v", err)
		}
	})
}
