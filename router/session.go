package router

import (
	"time"

	"github.com/zeebo/xxh3"
)

// MostSession bytes of a session's name count.
const MostSession = 256

// SessionOf is Ask.Session for what a client calls its conversation; 0: it names none. The same name of another team is another
// session; where nobody tells teams apart, all are of the empty one.
func SessionOf(team, name string) uint64 {
	if name == "" {
		return 0
	}
	return max(xxh3.HashString(team+"\x00"+name[:min(len(name), MostSession)]), 1)
}

// sessions remembers which worker served a session last. Its memory is bounded: where the younger half is full, the elder half
// is forgotten. The router calls it under its own lock.
type sessions struct {
	most         int
	ttl          time.Duration
	young, elder map[uint64]visit
}

type visit struct {
	w     *worker
	until time.Time
}

// last is the worker of a session; nil: not known.
func (s *sessions) last(now time.Time, session uint64) *worker {
	v, known := s.young[session]
	if !known {
		v = s.elder[session]
	}
	if session == 0 || !v.until.After(now) {
		return nil
	}
	return v.w
}

// visit notes that the worker serves the session.
func (s *sessions) visit(now time.Time, session uint64, w *worker) {
	if session == 0 {
		return
	}
	if _, known := s.young[session]; !known && len(s.young) >= max(s.most/2, 1) {
		s.elder, s.young = s.young, nil
	}
	if s.young == nil {
		s.young = map[uint64]visit{}
	}
	s.young[session] = visit{w, now.Add(s.ttl)}
}
