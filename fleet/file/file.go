// Package file lists workers that have no shim in a file, and keeps a fleet as the file says.
//
// It promises that a file which cannot be read, or has a mistake in it, changes nothing: the workers of before stay, and Status
// says why. It does not look whether workers serve (see fleet/scrape): they join as starting.
package file

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spokegate/spokegate/fleet/roster"
)

// MaxFile bounds the file, in bytes.
const MaxFile = 4 << 20

// DefaultEvery is how often the file is looked at where Source.Every is zero.
const DefaultEvery = time.Second

// Source keeps the workers of one file in a fleet.
type Source struct {
	Path string
	// Endpoint of all of them.
	Endpoint string
	roster.Keeper
	Log   *slog.Logger
	Every time.Duration // between two looks; DefaultEvery when zero

	judged  [sha256.Size]byte // the content that was taken or refused last
	seen    [sha256.Size]byte // by the last look
	wanted  []roster.Worker   // what the last good file lists
	refused bool              // the fleet took not all of these

	mu     sync.Mutex
	status Status
}

// Status is how it stands with the file.
type Status struct {
	Read    bool   // it was read once, without a mistake
	Workers int    // of it, in the fleet
	Problem string // why its present content is not, or not whole, in force; empty: it is
}

// Status may be asked at any time.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Run follows the file until ctx is done. Its workers leave then.
func (s *Source) Run(ctx context.Context) error {
	defer s.apply(ctx, nil)
	every := s.Every
	if every <= 0 {
		every = DefaultEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for first := true; ; first = false {
		s.look(ctx, first)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look reads the file. New content counts when two looks in a row find the same, since a file that is being written may be half
// there and have no mistake in it; the first look has no such patience.
func (s *Source) look(ctx context.Context, first bool) {
	data, err := read(s.Path)
	sum := sha256.Sum256(append([]byte(fmt.Sprint(err)), data...))
	settled := first || sum == s.seen
	s.seen = sum
	switch {
	case sum == s.judged:
		if s.refused {
			s.apply(ctx, s.wanted) // a name or an address may be free by now
		}
		return
	case !settled:
		return
	}
	s.judged = sum
	var list []roster.Worker
	if err == nil {
		list, err = Parse(data, s.Endpoint)
	}
	if err != nil {
		s.Log.Warn("the workers stay as they were", "file", s.Path, "error", err)
		s.refused = false
		s.note(func(st *Status) { st.Problem = err.Error() })
		return
	}
	s.wanted = list
	s.apply(ctx, list)
	s.note(func(st *Status) { st.Read = true }) // not before: until they have joined it would be a file that has nobody
	s.Log.Info("workers read", "file", s.Path, "workers", len(list))
}

// apply makes these the workers of the file in the fleet.
func (s *Source) apply(ctx context.Context, list []roster.Worker) { s.told(s.Keeper.Apply(ctx, list)) }

// told notes which workers cannot join, if any: another has the name or the address.
func (s *Source) told(problems []string) {
	problem := strings.Join(problems, "; ")
	s.refused = problem != ""
	if problem != "" && problem != s.Status().Problem {
		s.Log.Warn("workers of the file cannot join", "file", s.Path, "error", problem)
	}
	s.note(func(st *Status) { st.Workers, st.Problem = s.Keeper.Len(), problem })
}

func (s *Source) note(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s: more than %d bytes", path, MaxFile)
	}
	return data, nil
}
