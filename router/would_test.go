package router

import (
	"reflect"
	"testing"
)

// TestWouldChangesNothing: it answers as Pick does right behind it, and leaves loads, turns and memory as they are.
func TestWouldChangesNothing(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b)
	ask := Ask{Prompt: []byte(text(10, "p"))}
	for range 3 {
		loads := p.Load()
		would, err := p.Would(p.now, ask)
		if err != nil || would.Booking != nil {
			t.Fatalf("%+v, %v", would, err)
		}
		if now := p.Load(); !reflect.DeepEqual(now, loads) {
			t.Errorf("loads %+v, were %+v", now, loads)
		}
		c, err := p.Pick(p.now, ask)
		if err != nil || !reflect.DeepEqual(c.Addrs, would.Addrs) || c.Overlap != would.Overlap || c.Explain() != would.Explain() {
			t.Errorf("%v\n%swould have been\n%s", err, c.Explain(), would.Explain())
		}
	}
	if _, err := New(Config{}).Would(p.now, ask); err != ErrNoWorker {
		t.Error(err)
	}
}
