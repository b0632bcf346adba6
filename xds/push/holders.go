package push

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
)

// Holder is a door, and what the hub knows of it.
type Holder struct {
	Spoke, Door string
	// From is the address that it called from last.
	From      string
	Connected bool
	// Since is when it connected, or when it went away.
	Since time.Time
	// Revision that it has in force by its own word, and since when the hub knows; 0: none yet.
	Revision  uint64
	Digest    string // in hex
	HeldSince time.Time
	// Says is the revision that it said it has, when it connected, or has put in force since; 0: none.
	Says uint64
	// InFlight is the revision that was sent to it and that it has not answered; 0: none.
	InFlight uint64
	// Nack is why it refused the revision NackRevision; "": it has accepted one since.
	Nack         string
	NackRevision uint64
	NackAt       time.Time
	// Report is the last that it sent, at ReportedAt; nil: none yet. Not to be changed.
	Report     *hubv1.Report
	ReportedAt time.Time
}

// mostHolders bounds how many doors are remembered. Of those that are away the longest gone go first.
const mostHolders = 20_000

// mostOfSpoke bounds those of one spoke, so that one that makes up names pushes out no others'.
const mostOfSpoke = 2000

// holders are all doors that were here since the hub started.
type holders struct {
	mu     sync.Mutex
	byNode map[string]*holder
}

type holder struct {
	Holder
	stream *stream // that it has now; nil: none
	// refused is the version that this instance of the door refused: it is not sent to it again.
	refused, instance string
}

// Holders are all doors that were connected since the hub started, in order of spoke and door.
func (s *Server) Holders() []Holder {
	s.holders.mu.Lock()
	defer s.holders.mu.Unlock()
	out := make([]Holder, 0, len(s.holders.byNode))
	for _, h := range s.holders.byNode {
		out = append(out, h.Holder)
	}
	slices.SortFunc(out, func(a, b Holder) int { return cmp.Or(cmp.Compare(a.Spoke, b.Spoke), cmp.Compare(a.Door, b.Door)) })
	return out
}

func (l *holders) of(spoke, door string) *holder {
	node := delta.Node(spoke, door)
	h := l.byNode[node]
	if h == nil {
		n := 0
		for _, other := range l.byNode {
			if other.Spoke == spoke {
				n++
			}
		}
		if n >= mostOfSpoke {
			l.forget(spoke)
		} else if len(l.byNode) >= mostHolders {
			l.forget("")
		}
		h = &holder{Holder: Holder{Spoke: spoke, Door: door}}
		l.byNode[node] = h
	}
	return h
}

// forget drops the one that has been away for longest, of a spoke or, "", of all.
func (l *holders) forget(spoke string) {
	var oldest string
	for node, h := range l.byNode {
		if h.stream == nil && (spoke == "" || h.Spoke == spoke) && (oldest == "" || h.Since.Before(l.byNode[oldest].Since)) {
			oldest = node
		}
	}
	delete(l.byNode, oldest)
}

// join makes a stream the one of its door. It ends the one that was: a door that calls again knows better that it is gone.
func (l *holders) join(st *stream, from, instance string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.of(st.spoke, st.door)
	if h.stream != nil {
		close(h.stream.superseded)
	}
	if h.instance != instance {
		h.refused, h.instance = "", instance
	}
	h.stream, h.From, h.Connected, h.Since, h.InFlight = st, from, true, now, 0
	st.holder = h
}

func (l *holders) leave(st *stream, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := st.holder; h.stream == st {
		h.stream, h.Connected, h.Since, h.InFlight = nil, false, now, 0
	}
}

// says notes which revision a door has by its own word.
func (l *holders) says(st *stream, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	st.holder.Says = number
}

func (l *holders) sent(st *stream, c *policy.Cut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	st.holder.InFlight = c.Revision().GetNumber()
}

func (l *holders) acked(st *stream, c *policy.Cut, digest string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := st.holder
	if h.Revision != c.Revision().GetNumber() || h.Digest != digest {
		h.Revision, h.Digest, h.HeldSince = c.Revision().GetNumber(), digest, now
	}
	h.Says = h.Revision
	h.InFlight, h.Nack, h.NackRevision, h.NackAt, h.refused = 0, "", 0, time.Time{}, ""
}

func (l *holders) nacked(st *stream, c *policy.Cut, reason string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := st.holder
	h.InFlight, h.Nack, h.NackRevision, h.NackAt, h.refused = 0, reason, c.Revision().GetNumber(), now, delta.Version(c)
}

// refuses says whether the door has refused this very cut.
func (l *holders) refuses(st *stream, c *policy.Cut) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return st.holder.refused == delta.Version(c)
}

func (l *holders) reported(spoke, door string, r *hubv1.Report, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.of(spoke, door)
	h.Report, h.ReportedAt = proto.CloneOf(r), now
}
