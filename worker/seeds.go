package worker

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// seeds are what living streams of doors name as the seed of the hashes of blocks. A spoke has one; where doors differ, the
// one in use stays for as long as any names it.
type seeds struct {
	log *slog.Logger

	mu      sync.Mutex
	named   map[*session]namedSeed
	use     uint64 // 0: none yet
	differ  bool
	changed chan struct{} // closed when use changes
}

type namedSeed struct {
	door string
	seed uint64
}

func newSeeds(log *slog.Logger) *seeds {
	return &seeds{log: log, named: map[*session]namedSeed{}, changed: make(chan struct{})}
}

// name keeps what the welcome of a stream says; 0: nothing.
func (s *seeds) name(stream *session, door string, seed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seed == 0 {
		delete(s.named, stream)
	} else {
		s.named[stream] = namedSeed{door, seed}
	}
	s.choose()
}

// forget is called when a stream ends. The seed in use outlives the last one.
func (s *seeds) forget(stream *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.named, stream)
	s.choose()
}

func (s *seeds) choose() {
	all := slices.SortedFunc(maps.Values(s.named), func(a, b namedSeed) int { return cmp.Compare(a.door, b.door) })
	if len(all) == 0 {
		s.differ = false
		return
	}
	kept := slices.ContainsFunc(all, func(n namedSeed) bool { return n.seed == s.use })
	if !kept {
		s.use = all[0].seed
		close(s.changed)
		s.changed = make(chan struct{})
	}
	other := slices.IndexFunc(all, func(n namedSeed) bool { return n.seed != s.use })
	if differ := other >= 0; differ != s.differ {
		s.differ = differ
		if differ {
			s.log.Warn("doors differ in the seed of block hashes: they must have the same join token, or -seed-file", "door", all[other].door)
		}
	}
}

// current is the seed in use; changed is closed when it is another.
func (s *seeds) current() (seed uint64, known bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.use, s.use != 0, s.changed
}

// causes adds to what makes the worker worse than it seems, sorted, what is wrong with the seeds.
func (s *seeds) causes(list []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.differ {
		return list
	}
	return slices.Sorted(slices.Values(append(slices.Clone(list), "seed: doors differ, so some of them cannot find blocks here")))
}

// HashSeed is the spoke's seed of the hashes of blocks; known is false until a door has named one. changed is closed when it is
// another.
func (w *Worker) HashSeed() (seed uint64, known bool, changed <-chan struct{}) {
	return w.seeds.current()
}
