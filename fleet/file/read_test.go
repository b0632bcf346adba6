package file

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/roster"
	"github.com/spokegate/spokegate/fleet/scrape"
)

// TestReadMeansJoined: while its workers join, a file is not yet one that was read and has nobody, for that is what makes a picker
// ready without workers.
func TestReadMeansJoined(t *testing.T) {
	told := make(chan Status, 10)
	f := &following{T: t, fleet: fleet.NewUnacknowledged()}
	f.Source = &Source{Path: filepath.Join(t.TempDir(), "workers.yaml"), Endpoint: "large", Every: time.Millisecond, Log: slog.New(slog.DiscardHandler)}
	f.Keeper = roster.Keeper{Fleet: f.fleet, Watch: func(context.Context, []scrape.Target) { told <- f.Status() }}
	f.put(entry("a", 1))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Source.Run(ctx) })
	defer running.Wait()
	defer cancel()
	if st := <-told; st.Read && st.Workers == 0 {
		t.Errorf("as it joins: %+v", st)
	}
	for st := f.Status(); !st.Read || st.Workers != 1; st = f.Status() {
		time.Sleep(time.Millisecond)
	}
}
