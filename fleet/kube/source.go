// Package kube lists workers that are pods of an InferencePool in a Kubernetes cluster, and keeps a fleet as the API server says.
//
// It promises that the fleet depends on the last state of the pool and its pods alone, in whatever order it heard of them; that a
// pod which is being deleted is not picked from when that is heard; and that what was known stays while the API server is away,
// which Status tells. It does not look whether workers serve (see fleet/scrape), and it writes nothing but, where it is asked to,
// an entry in the pool's status and a lease.
package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/fleet/roster"
)

// Source keeps the workers of one pool in a fleet.
type Source struct {
	Client          *Client
	Namespace, Pool string
	// Endpoint of all of them.
	Endpoint string
	roster.Keeper
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics

	cluster  *cluster
	watch    func(context.Context, podStore) // watchPods, but for tests
	pause    time.Duration                   // firstPause, but for tests
	metrics  *metrics
	follows  *following // of Run's goroutine alone
	force    *pool      // the pool whose pods are known, of Run's goroutine alone
	found    found      // what is in force, of Run's goroutine alone
	problems []string   // logged last

	mu     sync.Mutex
	status Status
}

// following is a watch of pods.
type following struct {
	*pods
	stop func() // and wait
}

// Status is how it stands with the pool.
type Status struct {
	Known    bool           // the pool is there, and its pods have been listed
	Workers  int            // of it, in the fleet
	Pods     map[string]int // by state: ready, not_ready, draining, no_address, ended, joins, left_out
	Gone     string         // why there is nobody, or why the pool's present state is not in force; empty: neither
	Away     string         // why the API server does not answer, so that what is known may be old; empty: it does
	Problems []string       // pods that are left out, annotations that are not taken, workers that cannot join

	pool       *pool
	undeclared []int32
}

// again is how often workers are tried that could not join.
const again = 2 * time.Second

// New makes a source that has heard of nothing yet.
func New(s *Source) *Source {
	s.cluster, s.metrics, s.watch, s.pause = newCluster(), newMetrics(s.Registerer), s.watchPods, firstPause
	return s
}

// Status may be asked at any time.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Run follows the pool until ctx is done. Its workers leave then.
func (s *Source) Run(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { s.watchPool(watching) })
	defer func() {
		stop()
		s.follow(ctx, nil)
		all.Wait()
		s.Keeper.Apply(ctx, nil)
	}()
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		select {
		case <-s.cluster.poke:
			began := time.Now()
			s.step(watching)
			settle(ctx, min(restFor*time.Since(began), mostRest))
		case <-tick.C:
			if len(s.found.workers) != s.Keeper.Len() {
				s.step(watching) // a name or an address may be free by now
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// Between steps it waits restFor times as long as a step takes, so that ten thousand pods that flap cost a quarter of a core at most.
const (
	restFor  = 3
	mostRest = time.Second
)

func settle(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// told notes how it went to ask for a resource.
func (s *Source) told(resource string) func(error) {
	return func(err error) {
		s.metrics.asked(resource, err)
		s.cluster.told(resource, err, time.Now())
	}
}

// step makes the fleet as the API server has said.
func (s *Source) step(ctx context.Context) {
	c := s.cluster
	c.mu.Lock()
	is := c.pool
	c.mu.Unlock()
	s.follow(ctx, is)
	c.mu.Lock()
	known := false
	switch {
	case is == nil:
		s.force = nil
	case c.pods.byName != nil && c.pods.selector == is.selector:
		s.force, known = is, true
	}
	// Pods of a selector that is gone stay until those of the new one are known.
	if s.force == nil {
		s.found = found{}
	} else if known {
		s.found = find(s.force, c.pods.byName, s.Endpoint)
	}
	st := Status{Known: s.force != nil, Pods: s.found.pods, Gone: c.gone(s.Namespace, s.Pool), Away: c.away(), pool: is, undeclared: s.found.undeclared}
	c.mu.Unlock()
	st.Problems = slices.Concat(s.found.problems, s.Keeper.Apply(ctx, s.found.workers))
	st.Workers = s.Keeper.Len()
	s.note(st)
}

// follow watches the pods of a pool, and no others.
func (s *Source) follow(ctx context.Context, is *pool) {
	if s.follows != nil && (is == nil || s.follows.selector != is.selector) {
		s.follows.stop()
		s.follows = nil
		if is == nil {
			s.cluster.mu.Lock()
			s.cluster.pods = nil
			s.cluster.mu.Unlock()
		}
	}
	if is == nil || s.follows != nil {
		return
	}
	own, cancel := context.WithCancel(ctx)
	f := &following{pods: &pods{selector: is.selector}}
	s.cluster.mu.Lock()
	s.cluster.pods = f.pods
	s.cluster.mu.Unlock()
	done := make(chan struct{})
	f.stop = func() { cancel(); <-done }
	s.follows = f
	go func() {
		defer close(done)
		s.watch(own, podStore{s.cluster, f.pods})
	}()
}

// watchPods keeps the pods of a selector as the API server says.
func (s *Source) watchPods(ctx context.Context, into podStore) {
	what := watched{"pods", s.Namespace, "", into.own.selector}
	s.reflect(ctx, s.Client.listWatch(s.Client.pods, what, s.told("pods")), &Pod{}, into)
}

func (s *Source) watchPool(ctx context.Context) {
	what := watched{"inferencepools", s.Namespace, "metadata.name=" + s.Pool, ""}
	s.reflect(ctx, s.Client.listWatch(s.Client.pools, what, s.told("pool")), &InferencePool{}, poolStore{s.cluster})
}

// gone says why there is no pool, or not its present state.
func (c *cluster) gone(namespace, name string) string {
	switch {
	case c.mistake != "":
		return c.mistake
	case c.pool == nil && c.listed:
		return fmt.Sprintf("there is no InferencePool %s in namespace %s", name, namespace)
	}
	return ""
}

// away says what the API server does not answer, and since when.
func (c *cluster) away() string {
	var all []string
	for _, resource := range []string{"pool", "pods"} {
		if a := c.asked[resource]; a.err != nil && (resource == "pool" || c.pods != nil) {
			all = append(all, fmt.Sprintf("%s, since %s: %v", resource, a.since.UTC().Format(time.RFC3339), a.err))
		}
	}
	return strings.Join(all, "; ")
}

// note keeps the status, and tells what has changed in it.
func (s *Source) note(st Status) {
	before := s.Status()
	log := s.Log.With("namespace", s.Namespace, "pool", s.Pool)
	if st.Gone != before.Gone && st.Gone != "" {
		log.Warn("the pool's present state is not in force", "reason", st.Gone)
	}
	if (st.Away == "") != (before.Away == "") {
		if st.Away != "" {
			log.Warn("the API server does not answer; what is known stays", "error", st.Away)
		} else {
			log.Info("the API server answers again")
		}
	}
	for i, p := range st.Problems {
		if i < mostTold && !slices.Contains(s.problems, p) {
			log.Warn("not as its owner wants it", "problem", p)
		}
	}
	if st.Workers != before.Workers || st.Known != before.Known {
		log.Info("workers found", "workers", st.Workers, "ready_pods", st.Pods["ready"])
	}
	s.problems = st.Problems
	s.metrics.found(st)
	s.mu.Lock()
	s.status = st
	s.mu.Unlock()
}

// mostTold bounds what is logged at one time.
const mostTold = 20
