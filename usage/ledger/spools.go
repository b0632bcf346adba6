package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/spokegate/spokegate/usage"
)

// Spools are the journals of sources under some folders.
type Spools struct {
	dirs []string

	mu     sync.Mutex
	status FeedStatus
}

// OpenSpools names the folders; they may come later.
func OpenSpools(dirs ...string) (*Spools, error) {
	s := new(Spools)
	for _, dir := range dirs {
		path, err := filepath.Abs(dir) // a lane is known again, wherever the next process is started
		if err != nil {
			return nil, err
		}
		s.dirs = append(s.dirs, path)
	}
	return s, nil
}

const (
	// spoolsEvery is how often it looks for more.
	spoolsEvery = 250 * time.Millisecond
	// spoolsStep is how many lines of a source are read before it is the next one's turn.
	spoolsStep = 5000
)

// Status is how far it is. What was removed before it was read is not told: only the numbers of records do.
func (s *Spools) Status() FeedStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Follow reads on until ctx is done: also what is on its way to the disk, a moment before it is synced.
func (s *Spools) Follow(ctx context.Context, places map[string]string, items chan<- Item) error {
	tick := time.NewTicker(spoolsEvery)
	defer tick.Stop()
	for {
		more, err := s.pass(ctx, places, items)
		if ctx.Err() != nil {
			return nil
		}
		s.looked(more, err)
		if more && err == nil {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Spools) looked(more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Err = ""
	if err != nil {
		s.status.Err = err.Error()
		return
	}
	s.status.Looked, s.status.Pending = time.Now(), 0
	if more {
		s.status.Pending = 1 // at least a line; how many nobody has counted
	}
}

// pass reads a step of every journal. more: one has more than that.
func (s *Spools) pass(ctx context.Context, places map[string]string, items chan<- Item) (more bool, err error) {
	for _, dir := range s.dirs {
		folders, e := usage.Folders(dir)
		if e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		for _, folder := range folders {
			read, e := s.step(ctx, folder, places, items)
			if e != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", folder, e))
			}
			more = more || read == spoolsStep
		}
	}
	return more, err
}

func (s *Spools) step(ctx context.Context, folder string, places map[string]string, items chan<- Item) (int, error) {
	lane := "spool " + folder
	return usage.Lines(folder, places[lane], spoolsStep, func(l usage.Line, place string) error {
		it := Item{Record: l.Record, Err: l.Err, Lane: lane, Place: place, Where: fmt.Sprintf("%s, byte %d", l.File, l.Offset)}
		select {
		case items <- it:
			places[lane] = place
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}
