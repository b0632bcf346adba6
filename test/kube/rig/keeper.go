package rig

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// keeper keeps one container of a pod running, from life to life.
type keeper struct {
	pod     *pod
	spec    *corev1.Container
	started chan struct{} // closed when its startup probe has succeeded once
	once    sync.Once     // closes it
	ended   chan struct{} // closed when it is not kept any more
	stop    context.CancelCauseFunc

	// The pod's lock guards what follows: it is the pod's status.
	status  corev1.ContainerStatus
	ready   bool // by its probe
	startup bool
}

func (p *pod) keep(ctx context.Context, spec *corev1.Container) *keeper {
	k := &keeper{pod: p, spec: spec, started: make(chan struct{}), ended: make(chan struct{})}
	k.status = corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, ImageID: spec.Image}
	ctx, k.stop = context.WithCancelCause(ctx)
	p.mu.Lock()
	p.keepers = append(p.keepers, k)
	p.mu.Unlock()
	go k.run(ctx)
	return k
}

// endAt is the cause of a graceful end.
type endAt time.Time

func (endAt) Error() string { return "the pod is deleted" }

// run is over when ctx is done: by endAt gracefully, otherwise at once.
func (k *keeper) run(ctx context.Context) {
	defer close(k.ended)
	wait := 250 * time.Millisecond // a kubelet begins with ten seconds
	for ctx.Err() == nil {
		r, err := k.pod.start(ctx, k.spec)
		if err != nil {
			k.told("CreateContainerError", err.Error())
			k.pod.node.logf("pod %s: %s: %v", k.pod.Name, k.spec.Name, err)
		} else {
			k.live(ctx, r)
		}
		if !pauseFor(ctx, wait) {
			return
		}
		wait = min(2*wait, 10*time.Second)
	}
}

// live goes through one life of the container.
func (k *keeper) live(ctx context.Context, r *running) {
	k.pod.change(func() {
		k.status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now()}}
		k.startup, k.ready = k.spec.StartupProbe == nil, k.spec.ReadinessProbe == nil
	})
	probing, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	unwell := make(chan error, 1)
	go k.probe(probing, r, unwell)
	select {
	case <-r.done:
	case why := <-unwell:
		k.pod.node.logf("pod %s: %s is unwell and is started again: %v", k.pod.Name, k.spec.Name, why)
		r.end(time.Now().Add(k.pod.grace()))
	case <-ctx.Done():
		at, graceful := context.Cause(ctx).(endAt)
		if !graceful {
			at = endAt(time.Now())
		}
		r.end(time.Time(at))
	}
	k.pod.change(func() {
		k.startup, k.ready = false, false
		k.status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(r.code), FinishedAt: now()}}
		k.status.LastTerminationState = k.status.State
		if ctx.Err() == nil {
			k.status.RestartCount++
		}
	})
	if ctx.Err() == nil {
		k.pod.node.logf("pod %s: %s ended with status %d", k.pod.Name, k.spec.Name, r.code)
	}
}

// probe follows the container's probes: first startup, and then the others.
func (k *keeper) probe(ctx context.Context, r *running, unwell chan<- error) {
	if p := k.spec.StartupProbe; p != nil {
		up, stop := context.WithCancel(ctx)
		r.watch(up, p, false, func(bool, error) { stop() }) // its first change is success; who never gets there is patient
		stop()
		if ctx.Err() != nil {
			return
		}
	}
	k.pod.change(func() { k.startup = true })
	k.once.Do(func() { close(k.started) })
	if p := k.spec.LivenessProbe; p != nil {
		go r.watch(ctx, p, true, func(good bool, why error) {
			if !good {
				select {
				case unwell <- why:
				default:
				}
			}
		})
	}
	if p := k.spec.ReadinessProbe; p != nil {
		r.watch(ctx, p, false, func(good bool, _ error) { k.pod.change(func() { k.ready = good }) })
	}
}

// told tells in the status why the container does not run.
func (k *keeper) told(reason, message string) {
	k.pod.change(func() {
		k.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	})
}
