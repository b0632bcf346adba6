package follow

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// mark is a file that says when the hub was there last. It need not be exact, nor survive everything: nothing is decided by it
// but how old the policy is.
type mark struct {
	path string // "": none

	mu   sync.Mutex
	last time.Time
}

// read is what it says; zero: nothing. A time to come is none.
func (m *mark) read(now time.Time) time.Time {
	data, err := os.ReadFile(m.path)
	if err != nil {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(data)))
	if err != nil || at.After(now.Add(time.Minute)) {
		return time.Time{}
	}
	return at
}

// write replaces it, unless it was written a moment ago.
func (m *mark) write(at time.Time, now bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.path == "" || !now && at.Sub(m.last) < keepEvery {
		return
	}
	m.last = at
	if os.MkdirAll(filepath.Dir(m.path), 0o700) != nil {
		return
	}
	fresh := m.path + ".new"
	if os.WriteFile(fresh, []byte(at.UTC().Format(time.RFC3339)+"\n"), 0o600) == nil {
		_ = os.Rename(fresh, m.path)
	}
}
