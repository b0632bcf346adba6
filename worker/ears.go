package worker

import (
	"sync"
	"time"
)

// ears take what matters out of an engine's log.
type ears struct {
	reads   dialect
	changed chan struct{}

	mu                 sync.Mutex
	progress, degraded string
	cause              cause
	causeAt            time.Time
}

// cause of an end, as the log told it.
type cause struct{ what, line string }

// causeMost is how long before an end its cause may stand in the log: what was survived for longer was none.
const causeMost = 5 * time.Minute

func (e *ears) hear(line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	progress, degraded := e.reads.progressOf(line), e.reads.degradedOf(line)
	old := time.Since(e.causeAt) > causeMost
	if c := e.reads.causeOf(line); c.line != "" && (old || c.what == causeMemory) {
		e.cause, e.causeAt = c, time.Now() // the first one is the root, but for memory
	}
	if progress == "" && degraded == "" {
		return
	}
	if progress != "" {
		e.progress = progress
	}
	if degraded != "" {
		e.degraded = degraded
	}
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

func (e *ears) now() (progress, degraded string, c cause) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.causeAt) <= causeMost {
		c = e.cause
	}
	return e.progress, e.degraded, c
}
