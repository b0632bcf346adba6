// Package jwks brings the public keys of trusted issuers to identity.Issuers: it reads their files and asks their addresses.
//
// It promises that keys which were read once stay until others are read, however long an issuer is away, and that no request
// waits for an issuer. It does not look at tokens.
package jwks

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/identity"
)

// Options may all be left out.
type Options struct {
	Transport  http.RoundTripper // nil: one with the system's roots and the environment's proxy
	Log        *slog.Logger      // slog.Default() when nil
	Registerer prometheus.Registerer
}

// Keeper keeps the keys of the issuers that Follow names.
type Keeper struct {
	issuers *identity.Issuers
	client  *http.Client
	log     *slog.Logger
	metrics *metrics
	pace    pace

	mu      sync.Mutex
	list    []trusted
	turn    uint64        // how often Follow was called
	changed chan struct{} // closed at the next Follow
	status  map[string]Status
}

// trusted is an issuer, and since which turn: one that was left out and came back starts anew.
type trusted struct {
	identity.IssuerConfig
	since uint64
}

// pace is how often is read.
type pace struct {
	file           time.Duration // a file
	least, most    time.Duration // an address, whatever it says of its answer's age
	usual          time.Duration // an address that says nothing
	missing        time.Duration // at most so often, when a token names an unknown key
	retry, retried time.Duration // after a failure: at first, and at last
}

var usualPace = pace{file: time.Second, least: time.Minute, most: time.Hour, usual: 5 * time.Minute,
	missing: 10 * time.Second, retry: time.Second, retried: time.Minute}

// Status says how it stands with one issuer.
type Status struct {
	Name, Source string
	Keys         int       // that can verify; 0: never read
	ReadAt       time.Time // when they were read last, or found unchanged
	Problem      string    // of the last attempt; empty: none
}

// New keeps nothing until Run runs.
func New(issuers *identity.Issuers, o Options) *Keeper {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Keeper{issuers: issuers, client: newClient(o.Transport), log: o.Log, metrics: newMetrics(o.Registerer), pace: usualPace,
		changed: make(chan struct{}), status: map[string]Status{}}
}

// Follow trusts these issuers from now on, and no others. Keys of a new one come a moment later.
func (k *Keeper) Follow(list []identity.IssuerConfig) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.issuers.SetIssuers(list)
	k.turn++
	var next []trusted
	for _, c := range list {
		since := k.turn
		if i := slices.IndexFunc(k.list, func(t trusted) bool { return t.IssuerConfig == c }); i >= 0 {
			since = k.list[i].since
		}
		next = append(next, trusted{c, since})
	}
	for _, t := range k.list {
		if !slices.Contains(next, t) {
			delete(k.status, t.Name)
			k.metrics.forget(t.Name)
		}
	}
	k.list = next
	close(k.changed)
	k.changed = make(chan struct{})
}

// Run reads keys until ctx is done.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.client.CloseIdleConnections()
	var readers sync.WaitGroup
	defer readers.Wait()
	running := map[trusted]context.CancelFunc{}
	for {
		k.mu.Lock()
		list, changed := k.list, k.changed
		k.mu.Unlock()
		maps.DeleteFunc(running, func(c trusted, stop context.CancelFunc) bool {
			gone := !slices.Contains(list, c)
			if gone {
				stop()
			}
			return gone
		})
		for _, c := range list {
			if running[c] == nil {
				reading, stop := context.WithCancel(ctx)
				running[c] = stop
				readers.Go(func() { k.keep(reading, c) })
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			for _, stop := range running {
				stop()
			}
			return nil
		}
	}
}

// Status is that of every issuer, sorted by name.
func (k *Keeper) Status() []Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Status
	for _, c := range k.list {
		st := k.status[c.Name]
		st.Name, st.Source = c.Name, c.JWKSFile+c.JWKSURL
		out = append(out, st)
	}
	return out
}

// keep reads one issuer's keys again and again.
func (k *Keeper) keep(ctx context.Context, c trusted) {
	read, slowest := k.file, k.pace.file
	if c.JWKSURL != "" {
		read, slowest = k.address, k.pace.retried
	}
	var has answer
	retry := k.pace.retry
	for {
		at := time.Now()
		got, err := read(ctx, c.IssuerConfig, has)
		if ctx.Err() != nil {
			return
		}
		if err == nil && !got.unchanged && !bytes.Equal(got.data, has.data) {
			err = k.take(c, got.data)
		}
		k.note(c, at, got.unchanged, err)
		wait := min(retry, slowest)
		if err == nil {
			if !got.unchanged {
				has = got
			}
			wait, retry = got.fresh, k.pace.retry
		} else {
			retry = min(2*retry, slowest)
		}
		if !k.wait(ctx, c, at, wait) {
			return
		}
	}
}

// wait waits until keys are to be read again: after some time, or earlier, because a token names an unknown key. It is false
// when ctx is done.
func (k *Keeper) wait(ctx context.Context, c trusted, since time.Time, rest time.Duration) bool {
	timer := time.NewTimer(rest)
	defer timer.Stop()
	missing := k.issuers.Missing(c.IssuerConfig)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-missing:
			missing = nil // once is enough
			timer.Reset(min(rest, max(0, time.Until(since.Add(k.pace.missing)))))
		}
	}
}

// take puts keys in force.
func (k *Keeper) take(c trusted, data []byte) error {
	set, err := identity.ParseJWKS(data)
	if err != nil {
		return err
	}
	k.issuers.SetKeys(c.IssuerConfig, set)
	k.log.Info("keys of an issuer read", "issuer", c.Name, "keys", set.Len(), "passed_over", set.Passed)
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.list, c) {
		st := k.status[c.Name]
		st.Keys = set.Len()
		k.status[c.Name] = st
		k.metrics.keys.WithLabelValues(c.Name).Set(float64(st.Keys))
	}
	return nil
}

// note tells how an attempt went; a problem that goes on is logged once.
func (k *Keeper) note(c trusted, at time.Time, unchanged bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.list, c) {
		return
	}
	st, result := k.status[c.Name], "read"
	switch {
	case err != nil:
		result = "failed"
		if problem := err.Error(); problem != st.Problem {
			k.log.Warn("keys of an issuer cannot be read; those read before stay", "issuer", c.Name, "keys", st.Keys, "error", problem)
			st.Problem = problem
		}
	default:
		if unchanged {
			result = "unchanged"
		}
		st.Problem, st.ReadAt = "", at
		k.metrics.success.WithLabelValues(c.Name).Set(float64(at.Unix()))
	}
	k.metrics.reads.WithLabelValues(c.Name, result).Inc()
	k.status[c.Name] = st
}
