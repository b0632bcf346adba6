package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func now() metav1.Time { return metav1.Now() }

// pod is one that runs on the node.
type pod struct {
	*corev1.Pod // as it was when the node took it
	node        *Node
	number      int
	dir         string
	box         *sandbox
	volumes     map[string]string // by name, folders on the node
	deleted     context.Context   // done when it is deleted, or the node stops
	delete      context.CancelCauseFunc
	over        chan struct{}

	mu          sync.Mutex
	keepers     []*keeper // in the order of their start: sidecars, then the others
	initialized bool
	changed     chan struct{} // one that waits for the reporter
}

// live is a pod's whole life, from its sandbox to its deletion.
func (p *pod) live() {
	defer close(p.over)
	// Containers live on until they are told in order, whatever is deleted.
	life, kill := context.WithCancelCause(context.WithoutCancel(p.deleted))
	defer kill(nil)
	reporting, done := context.WithCancel(context.Background())
	reported := make(chan struct{})
	go func() { defer close(reported); p.report(reporting) }()
	if err := p.begin(life); err != nil && p.deleted.Err() == nil {
		p.node.logf("pod %s: %v", p.Name, err)
	}
	<-p.deleted.Done()
	p.endInOrder()
	kill(nil)
	for _, k := range p.keepers {
		<-k.ended
	}
	if p.box != nil {
		p.box.close()
	}
	done()
	<-reported
	p.forget()
}

// begin makes the sandbox and starts the containers in their order.
func (p *pod) begin(life context.Context) (err error) {
	if p.box, err = newSandbox(p.number, p.Spec.ShareProcessNamespace != nil && *p.Spec.ShareProcessNamespace); err != nil {
		return err
	}
	p.change(func() {}) // its address
	if err := p.writeHosts(); err != nil {
		return err
	}
	for _, v := range p.Spec.Volumes {
		// What a volume is made from may come later, as in a cluster.
		for {
			dir, err := p.volume(p.deleted, &v)
			if err == nil {
				p.volumes[v.Name] = dir
				break
			}
			p.node.logf("pod %s: %v", p.Name, err)
			if !pauseFor(p.deleted, time.Second) {
				return err
			}
		}
	}
	for i := range p.Spec.InitContainers {
		if err := p.initialize(life, &p.Spec.InitContainers[i]); err != nil {
			return err
		}
	}
	p.change(func() { p.initialized = true })
	for i := range p.Spec.Containers {
		p.keep(life, &p.Spec.Containers[i])
	}
	return nil
}

// initialize runs an init container to its end, or starts a sidecar and waits until it is up.
func (p *pod) initialize(life context.Context, spec *corev1.Container) error {
	if spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		k := p.keep(life, spec)
		select {
		case <-k.started:
			return nil
		case <-p.deleted.Done():
			return p.deleted.Err()
		}
	}
	for {
		r, err := p.start(life, spec)
		if err != nil {
			return err
		}
		select {
		case <-r.done:
		case <-p.deleted.Done():
			r.end(time.Now().Add(p.grace()))
			return p.deleted.Err()
		}
		if r.code == 0 {
			return nil
		}
		p.node.logf("pod %s: %s ended with status %d", p.Name, spec.Name, r.code)
		if !pauseFor(p.deleted, time.Second) {
			return p.deleted.Err()
		}
	}
}

// endInOrder ends the containers as a kubelet does: all main ones, then sidecars in the reverse order of their start, with the
// grace period over all. A node that stops has no patience.
func (p *pod) endInOrder() {
	at, graceful := context.Cause(p.deleted).(endAt)
	if !graceful {
		at = endAt(time.Now())
	}
	sidecars := len(p.keepers)
	if p.initialized {
		sidecars -= len(p.Spec.Containers)
	}
	for _, k := range p.keepers[sidecars:] {
		k.stop(at)
	}
	for _, k := range p.keepers[sidecars:] {
		<-k.ended
	}
	for _, k := range slices.Backward(p.keepers[:sidecars]) {
		if least := endAt(time.Now().Add(2 * time.Second)); graceful && time.Time(at).Before(time.Time(least)) {
			at = least
		}
		k.stop(at)
		<-k.ended
	}
}

// grace is how long the pod's end may take.
func (p *pod) grace() time.Duration {
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 30 * time.Second
}

func (p *pod) writeHosts() error {
	hosts := fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", p.box.IP, p.Name)
	resolv := fmt.Sprintf("search %s.svc.%s svc.%s %s\nnameserver %s\noptions ndots:5\n", p.Namespace, domain, domain, domain, nodeAddress)
	if err := os.WriteFile(filepath.Join(p.dir, "hosts"), []byte(hosts), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.dir, "resolv.conf"), []byte(resolv), 0o644)
}

// change changes the pod's status, which is reported soon.
func (p *pod) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// report writes the status to the API server, whenever it has changed.
func (p *pod) report(until context.Context) {
	for {
		select {
		case <-p.changed:
		case <-until.Done():
			return
		}
		text, err := json.Marshal(map[string]any{"status": p.statusNow()})
		if err != nil {
			panic(err) // our own value
		}
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			_, err := p.node.c.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, text, metav1.PatchOptions{}, "status")
			cancel()
			if err == nil || apierrors.IsNotFound(err) || until.Err() != nil {
				break
			}
			p.node.logf("pod %s: its status: %v", p.Name, err)
			pauseFor(until, 500*time.Millisecond)
		}
	}
}

func (p *pod) statusNow() corev1.PodStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := corev1.PodStatus{Phase: corev1.PodPending, HostIP: nodeAddress, StartTime: &p.CreationTimestamp}
	if p.box != nil {
		s.PodIP, s.PodIPs = p.box.IP, []corev1.PodIP{{IP: p.box.IP}}
	}
	ready := p.initialized
	sidecars := len(p.keepers)
	if p.initialized {
		s.Phase = corev1.PodRunning
		sidecars -= len(p.Spec.Containers)
		ready = sidecars >= 0 // all are kept by now
	}
	for i, k := range p.keepers {
		c := k.status
		c.Started = &k.startup
		c.Ready = c.State.Running != nil && k.startup && k.ready
		ready = ready && c.Ready
		if i < sidecars {
			s.InitContainerStatuses = append(s.InitContainerStatuses, *c.DeepCopy())
		} else {
			s.ContainerStatuses = append(s.ContainerStatuses, *c.DeepCopy())
		}
	}
	for _, c := range []struct {
		name corev1.PodConditionType
		is   bool
	}{{corev1.PodScheduled, true}, {corev1.PodInitialized, p.initialized}, {corev1.ContainersReady, ready}, {corev1.PodReady, ready}} {
		status := corev1.ConditionFalse
		if c.is {
			status = corev1.ConditionTrue
		}
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: c.name, Status: status, LastTransitionTime: now()})
	}
	return s
}

// forget deletes the pod's object for good, as a kubelet does when all has ended.
func (p *pod) forget() {
	none := int64(0)
	for p.node.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := p.node.c.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &none, Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		cancel()
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		pauseFor(p.node.ctx, 500*time.Millisecond)
	}
}
