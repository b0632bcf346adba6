package worker

import (
	"slices"
	"sync"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// mostBegun bounds what waits for a door that takes nothing. What comes then is dropped: the door hears of a request's end anyway.
const mostBegun = 1024

// begunGather is how long one waits for others to be told with: each message wakes two processes, and a prompt takes longer.
const begunGather = 5 * time.Millisecond

// begun tells doors that want it which of their requests have begun to be answered as streams. Who tells never waits.
type begun struct {
	mu    sync.Mutex
	boxes map[string]*begunBox // by the name of the door
}

// begunBox is what one stream of a door has to hear.
type begunBox struct {
	filled     chan struct{}
	admissions []string // guarded by begun.mu
}

func newBegunBox() *begunBox { return &begunBox{filled: make(chan struct{}, 1)} }

// name says whose box it is, in place of what was said before; empty: it does not want to hear.
func (b *begun) name(box *begunBox, door string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, of := range b.boxes {
		if of == box {
			delete(b.boxes, name)
		}
	}
	if door == "" {
		return
	}
	if b.boxes == nil {
		b.boxes = map[string]*begunBox{}
	}
	b.boxes[door] = box
}

// tell hands an admission to the door that made its context.
func (b *begun) tell(door, admission string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	box := b.boxes[door]
	if box == nil || len(box.admissions) >= mostBegun {
		return
	}
	box.admissions = append(box.admissions, admission)
	select {
	case box.filled <- struct{}{}:
	default:
	}
}

// take is all that has gathered.
func (b *begun) take(box *begunBox) *workerv1.JoinRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(box.admissions)
	box.admissions = box.admissions[:0]
	return &workerv1.JoinRequest{Message: &workerv1.JoinRequest_Begun{Begun: &workerv1.Begun{Admissions: all}}}
}
