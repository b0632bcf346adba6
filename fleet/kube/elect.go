package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Times of a lease, as Kubernetes' own components have them.
const (
	leaseFor   = 15 * time.Second // who does not renew it for so long has lost it
	askMost    = 10 * time.Second
	leaseEvery = 2 * time.Second
)

// Elector holds a Lease, or waits for it. It promises that one leads as long as the API server answers all of them, for clocks that
// run alike; they need not show the same time. Who leads goes on while it does not answer, for a picker that serves alone is better
// than none: where only this one cannot reach it, two lead until it can.
type Elector struct {
	Client          *Client
	Namespace, Name string // of the Lease
	// Identity is of this process alone.
	Identity string
	// Changed is told each change; it must not wait.
	Changed    func(leads bool)
	Log        *slog.Logger
	Registerer prometheus.Registerer

	every time.Duration // leaseEvery, but for tests
	seen  sighting      // of Run's goroutine alone
	ours  bool          // the lease, by what was heard last; of Run's goroutine alone

	mu     sync.Mutex
	leads  bool
	holder string
	err    error
}

// sighting is a state of the lease, and when it was first seen: only this process's own clock is compared with.
type sighting struct {
	holder  string
	renewed time.Time // by the holder's clock
	at      time.Time
	patient time.Duration // after which it may be taken
}

// Status says whether this process leads, who does, and why that is not known.
func (e *Elector) Status() (leads bool, holder string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leads, e.holder, e.err
}

// Run takes part until ctx is done. It gives the lease back then, so that another need not wait.
func (e *Elector) Run(ctx context.Context) error {
	leader := promauto.With(e.Registerer).NewGauge(prometheus.GaugeOpts{Name: "spokegate_pool_leader", Help: "1 while this picker holds the lease."})
	if e.every == 0 {
		e.every = leaseEvery
	}
	tick := time.NewTicker(e.every)
	defer tick.Stop()
	for {
		e.attempt(ctx)
		leader.Set(map[bool]float64{true: 1}[e.ours])
		e.note(e.ours)
		select {
		case <-tick.C:
		case <-ctx.Done():
			e.resign()
			leader.Set(0)
			return nil
		}
	}
}

// attempt takes the lease, or renews it. Where the API server does not answer, all stays as it was: nobody else can take the lease
// there either, or this process hears of it with the first answer.
func (e *Elector) attempt(ctx context.Context) {
	ask, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	ours, err := e.try(ask, time.Now())
	if err == nil {
		e.ours = ours
	}
	e.mu.Lock()
	e.holder, e.err = e.seen.holder, err
	e.mu.Unlock()
}

// try asks once. Without an error it knows whose the lease is.
func (e *Elector) try(ctx context.Context, now time.Time) (ours bool, err error) {
	l := &Lease{}
	err = e.Client.leases.Get().Namespace(e.Namespace).Resource("leases").Name(e.Name).Do(ctx).Into(l)
	if apierrors.IsNotFound(err) {
		l = &Lease{ObjectMeta: metav1.ObjectMeta{Name: e.Name, Namespace: e.Namespace}}
		l.Spec = e.hold(l.Spec, now)
		err = e.Client.leases.Post().Namespace(e.Namespace).Resource("leases").Body(l).Do(ctx).Error()
		return e.won(err)
	}
	if err != nil {
		return false, err
	}
	// Seen when it was heard, and judged by when it was asked: however slow the answer, nobody's lease is taken too early.
	if e.see(l.Spec, time.Now()); !e.free(now) {
		return false, nil
	}
	l.Spec = e.hold(l.Spec, now)
	return e.put(ctx, l)
}

func (e *Elector) put(ctx context.Context, l *Lease) (ours bool, err error) {
	return e.won(e.Client.leases.Put().Namespace(e.Namespace).Resource("leases").Name(e.Name).Body(l).Do(ctx).Error())
}

// won judges a write: another wrote before, who may have been anybody, and is seen at the next look. Until then all is as it was.
func (e *Elector) won(err error) (bool, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return e.ours, nil
	}
	if err == nil {
		e.seen.holder = e.Identity
	}
	return err == nil, err
}

// see notes the state of the lease.
func (e *Elector) see(l LeaseSpec, now time.Time) {
	var renewed time.Time
	if l.RenewTime != nil {
		renewed = l.RenewTime.Time
	}
	if e.seen.at.IsZero() || l.HolderIdentity != e.seen.holder || !renewed.Equal(e.seen.renewed) {
		e.seen = sighting{l.HolderIdentity, renewed, now, time.Duration(l.LeaseDurationSeconds) * time.Second}
	}
}

// free says that the lease is ours, nobody's, or of one who has not been heard of for as long as it lasts.
func (e *Elector) free(now time.Time) bool {
	return e.seen.holder == "" || e.seen.holder == e.Identity || now.Sub(e.seen.at) > e.seen.patient
}

// hold is the lease in our hands.
func (e *Elector) hold(l LeaseSpec, now time.Time) LeaseSpec {
	at := metav1.NewMicroTime(now)
	if l.HolderIdentity != e.Identity {
		if l.AcquireTime != nil {
			l.LeaseTransitions++
		}
		l.AcquireTime = &at
	}
	l.HolderIdentity, l.LeaseDurationSeconds, l.RenewTime = e.Identity, int32(leaseFor/time.Second), &at
	return l
}

// resign gives back what is ours.
func (e *Elector) resign() {
	e.note(false)
	if !e.ours {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	l := &Lease{}
	err := e.Client.leases.Get().Namespace(e.Namespace).Resource("leases").Name(e.Name).Do(ctx).Into(l)
	if err == nil && l.Spec.HolderIdentity == e.Identity {
		l.Spec.HolderIdentity = ""
		_, err = e.put(ctx, l)
	}
	if err != nil {
		e.Log.Warn("the lease could not be given back, so another leads only when it ends", "lease", e.Name, "error", err)
	}
}

func (e *Elector) note(leads bool) {
	e.mu.Lock()
	before, holder := e.leads, e.holder
	e.leads = leads
	e.mu.Unlock()
	if leads == before {
		return
	}
	e.Log.Info(fmt.Sprintf("this picker %s", map[bool]string{true: "leads", false: "leads no more"}[leads]), "lease", e.Name, "holder", holder)
	e.Changed(leads)
}
