package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nodeName is the one node's.
const nodeName = "node"

// Node runs pods as processes of this machine: see the package's doc. It is also what reaches them: services and names.
type Node struct {
	c      *Cluster
	dir    string
	images map[string]image
	ctx    context.Context
	stop   context.CancelFunc
	done   sync.WaitGroup
	svc    *services

	mu     sync.Mutex
	pods   map[types.UID]*pod
	number int // of pods so far
	events []string
}

// StartNode starts the node; it wants Main's namespaces. Pods that name it run from then on.
func (c *Cluster) StartNode() (*Node, error) {
	n := &Node{c: c, dir: c.path("node"), pods: map[types.UID]*pod{}}
	n.ctx, n.stop = context.WithCancel(context.Background())
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Chmod(c.dir, 0o755); err != nil { // pods' users walk through it to their volumes
		return nil, err
	}
	if err := n.findImages(); err != nil {
		return nil, err
	}
	if err := makeBridge(); err != nil {
		return nil, err
	}
	var err error
	if n.svc, err = newServices(n); err != nil {
		return nil, err
	}
	n.done.Add(1)
	go n.loop()
	return n, nil
}

// Stop kills all pods and returns when they are gone.
func (n *Node) Stop() {
	n.stop()
	n.done.Wait()
	n.svc.close()
}

func (n *Node) logf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// loop does what the API server's pods and services say. One that does not answer is asked again; pods go on meanwhile.
func (n *Node) loop() {
	defer n.done.Done()
	for n.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(n.ctx, 10*time.Second)
		pods, err := n.c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
		if err == nil {
			n.take(pods.Items)
			var all *corev1.ServiceList
			if all, err = n.c.Client.CoreV1().Services("").List(ctx, metav1.ListOptions{}); err == nil {
				n.svc.update(all.Items, pods.Items)
			}
		}
		if err != nil {
			n.logf("the API server: %v", err)
		}
		cancel()
		pauseFor(n.ctx, 100*time.Millisecond)
	}
}

// take starts pods that are new, and ends those that are deleted.
func (n *Node) take(pods []corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	there := map[types.UID]bool{}
	for i := range pods {
		o := &pods[i]
		there[o.UID] = true
		p := n.pods[o.UID]
		if p == nil {
			p = n.newPod(o)
			n.pods[o.UID] = p
			n.done.Add(1)
			go func() { defer n.done.Done(); p.live() }()
		}
		if o.DeletionTimestamp != nil && p.deleted.Err() == nil {
			p.delete(endAt(time.Now().Add(time.Duration(*o.DeletionGracePeriodSeconds) * time.Second)))
		}
	}
	for uid, p := range n.pods {
		if !there[uid] { // deleted by force
			p.delete(nil)
			select {
			case <-p.over:
				delete(n.pods, uid)
			default:
			}
		}
	}
}

func (n *Node) newPod(o *corev1.Pod) *pod {
	n.number++
	p := &pod{
		Pod: o, node: n, number: n.number, dir: filepath.Join(n.dir, "pods", o.Namespace+"_"+o.Name+"_"+string(o.UID)),
		volumes: map[string]string{}, over: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	p.deleted, p.delete = context.WithCancelCause(n.ctx)
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		n.events = append(n.events, err.Error())
	}
	return p
}

// Log is what a container of a pod has written in all its lives. Pods of the same name, one after the other, are told together.
func (n *Node) Log(t testing.TB, namespace, name, container string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.dir, "pods", namespace+"_"+name+"_*", container+".log"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// Tell has a test that fails show what the node did, and the last lines of each container in the namespace.
func (n *Node) Tell(t testing.TB, namespace string) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		n.mu.Lock()
		t.Log("the node:\n" + strings.Join(n.events, "\n"))
		n.mu.Unlock()
		files, _ := filepath.Glob(filepath.Join(n.dir, "pods", namespace+"_*", "*.log"))
		for _, f := range files {
			text, _ := os.ReadFile(f)
			t.Logf("%s:\n%s", f, text[max(0, len(text)-3000):])
		}
	})
}
