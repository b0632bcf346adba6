package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// cluster is what the API server has said so far. Stores write it, the source reads it.
type cluster struct {
	mu      sync.Mutex
	pool    *pool  // nil: there is none, or none that can be used
	listed  bool   // the API server was asked for it
	mistake string // why its last state is not in force
	pods    *pods  // of the watch that counts; nil: of none
	asked   map[string]answer
	poke    chan struct{} // something has changed
}

// answer is how it went when the API server was asked last.
type answer struct {
	err   error // nil: well
	since time.Time
}

// pods are those that one selector matches.
type pods struct {
	selector string
	byName   map[string]pod // nil: they have not been listed yet
}

func newCluster() *cluster {
	return &cluster{asked: map[string]answer{}, poke: make(chan struct{}, 1)}
}

// changed runs a change and says so.
func (c *cluster) changed(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	select {
	case c.poke <- struct{}{}:
	default: // it has been said
	}
}

// told notes how it went to ask for a resource.
func (c *cluster) told(resource string, err error, now time.Time) {
	c.mu.Lock()
	before := c.asked[resource]
	c.mu.Unlock()
	if (before.err == nil) == (err == nil) && !before.since.IsZero() && err == nil {
		return
	}
	c.changed(func() {
		if before.err == nil || err == nil {
			before.since = now
		}
		c.asked[resource] = answer{err, before.since}
	})
}

// poolStore takes the pool from its watch.
type poolStore struct{ *cluster }

func (s poolStore) put(o any) error {
	object, is := o.(*InferencePool)
	if !is {
		return fmt.Errorf("a %T among pools", o)
	}
	p, err := poolOf(object)
	s.changed(func() {
		s.listed = true
		switch {
		case err == nil:
			s.pool, s.mistake = p, ""
		case s.pool != nil && s.pool.uid != p.uid:
			s.pool, s.mistake = nil, err.Error() // what was in force is not of this pool
		default:
			s.mistake = err.Error()
			if s.pool != nil { // its status is that of the object as it is now
				kept := *s.pool
				kept.version, kept.generation, kept.picker, kept.status = p.version, p.generation, p.picker, p.status
				s.pool = &kept
			}
		}
	})
	return nil
}

func (s poolStore) Add(o any) error    { return s.put(o) }
func (s poolStore) Update(o any) error { return s.put(o) }
func (s poolStore) Resync() error      { return nil }

func (s poolStore) Delete(any) error {
	s.changed(func() { s.pool, s.mistake, s.listed = nil, "", true })
	return nil
}

func (s poolStore) Replace(list []any, _ string) error {
	if len(list) == 0 {
		return s.Delete(nil)
	}
	return s.put(list[0])
}

// podStore takes the pods of one selector from their watch. What it is told counts once it has been told all.
type podStore struct {
	*cluster
	own *pods
}

func (s podStore) change(o any, change func(p *Pod)) error {
	p, is := o.(*Pod)
	if !is {
		return fmt.Errorf("a %T among pods", o)
	}
	s.changed(func() { change(p) })
	return nil
}

func (s podStore) put(o any) error {
	return s.change(o, func(p *Pod) { s.own.byName[p.Name] = podOf(p) })
}

func (s podStore) Add(o any) error    { return s.put(o) }
func (s podStore) Update(o any) error { return s.put(o) }
func (s podStore) Resync() error      { return nil }

func (s podStore) Delete(o any) error {
	return s.change(o, func(p *Pod) { delete(s.own.byName, p.Name) })
}

func (s podStore) Replace(list []any, _ string) error {
	all := make(map[string]pod, len(list))
	for _, o := range list {
		p, is := o.(*Pod)
		if !is {
			return fmt.Errorf("a %T among pods", o)
		}
		all[p.Name] = podOf(p)
	}
	s.changed(func() { s.own.byName = all })
	return nil
}

// firstPause is how long the first pause is after something broke; the longest is mostPause.
const (
	firstPause = 500 * time.Millisecond
	mostPause  = 10 * time.Second
)

// reflect keeps a store as the API server says, until ctx is done. What breaks is tried again, more and more seldom.
func (s *Source) reflect(ctx context.Context, lw *cache.ListWatch, kind any, store cache.ReflectorStore) {
	r := cache.NewReflectorWithOptions(lw, kind, store, cache.ReflectorOptions{
		Name: "pool", Backoff: &wait.Backoff{Duration: s.pause, Cap: mostPause, Steps: 20, Factor: 2, Jitter: 0.5},
	})
	r.RunWithContext(ctx)
}
