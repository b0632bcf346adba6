package worker

import (
	"slices"
	"sync"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// mostBegun bounds what waits for a door that takes nothing. What comes then is dropped: the door hears of a request's end anyway.
const mostBegun = 1024

// begun tells doors that want it which of their requests have begun to be answered as streams. Who tells never waits.
type begun struct {
	mu    sync.Mutex
	boxes map[string]*begunBox // by the id of a key that the door signs with
}

// begunBox is what one stream of a door has to hear.
type begunBox struct {
	filled     chan struct{}
	admissions []string // guarded by begun.mu
}

func newBegunBox() *begunBox { return &begunBox{filled: make(chan struct{}, 1)} }

// name takes the place of the keys that a stream of a door has named before; none: it does not want to hear.
func (b *begun) name(box *begunBox, keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, of := range b.boxes {
		if of == box {
			delete(b.boxes, key)
		}
	}
	if b.boxes == nil {
		b.boxes = map[string]*begunBox{}
	}
	for _, key := range keys {
		b.boxes[key] = box
	}
}

// tell hands an admission to the door whose key has signed it.
func (b *begun) tell(key, admission string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	box := b.boxes[key]
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
