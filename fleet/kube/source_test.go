package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/roster"
	"github.com/spokegate/spokegate/fleet/scrape"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an API server without a network: its watches are told what happened, in order, when the test says so.
type world struct {
	*testing.T
	*Source
	fleet    *fleet.Fleet
	registry *prometheus.Registry
	watched  map[string]bool // by name
	opened   chan podStore

	pods map[string]*Pod // as they are
	pool *InferencePool
	uids int

	poolNews []func()  // not told yet
	podNews  []func()  // not told yet
	store    *podStore // of the watch of pods; nil: none
	end      func()
	ctx      context.Context
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, fleet: fleet.NewUnacknowledged(), registry: prometheus.NewRegistry(), opened: make(chan podStore), pods: map[string]*Pod{}}
	w.Source = New(&Source{Namespace: "ns", Pool: "large", Endpoint: "large", Log: slog.New(slog.DiscardHandler), Registerer: w.registry,
		Keeper: roster.Keeper{Fleet: w.fleet, Watch: func(_ context.Context, list []scrape.Target) {
			w.watched = map[string]bool{}
			for _, t := range list {
				w.watched[t.Worker.Name] = true
			}
		}}})
	w.Source.watch = func(ctx context.Context, into podStore) {
		select {
		case w.opened <- into:
			<-ctx.Done()
		case <-ctx.Done():
		}
	}
	w.ctx, w.end = context.WithCancel(t.Context())
	t.Cleanup(func() { w.end(); w.follow(w.ctx, nil) })
	return w
}

// go through all that the API server has said so far.
func (w *world) look() {
	for {
		select {
		case <-w.cluster.poke:
			w.step(w.ctx)
		default:
			// A watch that was begun anew knows nothing of what was not told to the one before.
			if w.follows == nil {
				w.store, w.podNews = nil, nil
			} else if w.store == nil || w.store.own != w.follows.pods {
				store := <-w.opened
				w.store, w.podNews = &store, []func(){w.relist}
			}
			return
		}
	}
}

// relist is what a watch does at first, and when it has expired.
func (w *world) relist() {
	var list []any
	for _, p := range w.pods {
		if w.matches(p) {
			list = append(list, p)
		}
	}
	_ = w.store.Replace(list, "")
}

func (w *world) matches(p *Pod) bool {
	for _, part := range strings.Split(w.store.own.selector, ",") {
		key, value, _ := strings.Cut(part, "=")
		if p.Labels[key] != value {
			return false
		}
	}
	return true
}

// tell delivers the oldest news of one watch, if there is any.
func tell(news *[]func()) {
	if len(*news) > 0 {
		first := (*news)[0]
		*news = (*news)[1:]
		first()
	}
}

// put changes a pod; a watch hears of it as far as its selector goes.
func (w *world) put(p *Pod) {
	before := w.pods[p.Name]
	w.pods[p.Name] = p
	w.news(func() {
		switch {
		case w.matches(p) && before != nil:
			_ = w.store.Update(p)
		case w.matches(p):
			_ = w.store.Add(p)
		case before != nil:
			_ = w.store.Delete(p)
		}
	})
}

func (w *world) remove(name string) {
	p := w.pods[name]
	delete(w.pods, name)
	w.news(func() { _ = w.store.Delete(p) })
}

// news of pods reach who watches.
func (w *world) news(tell func()) {
	if w.store != nil {
		w.podNews = append(w.podNews, tell)
	}
}

func (w *world) setPool(p *InferencePool) {
	before := w.pool
	w.pool = p
	w.poolNews = append(w.poolNews, func() {
		switch {
		case p == nil:
			_ = poolStore{w.cluster}.Delete(before)
		case before == nil:
			_ = poolStore{w.cluster}.Add(p)
		default:
			_ = poolStore{w.cluster}.Update(p)
		}
	})
}

// settle tells all, and looks.
func (w *world) settle() {
	w.look()
	for len(w.poolNews)+len(w.podNews) > 0 {
		tell(&w.poolNews)
		w.look()
		tell(&w.podNews)
		w.look()
	}
}

// oracle computes from the final state alone, the slow and obvious way.
func (w *world) oracle() (lines []string) {
	if w.pool == nil {
		return nil
	}
	here := func(p *Pod) bool {
		for k, v := range w.pool.Spec.Selector.MatchLabels {
			if p.Labels[k] != v {
				return false
			}
		}
		return p.Annotations[Joins] != "true" && p.Status.PodIP != "" && p.Status.Phase == "Running"
	}
	for _, p := range w.pods {
		if !here(p) {
			continue
		}
		beaten := false
		for _, q := range w.pods {
			if q == p || !here(q) || q.Status.PodIP != p.Status.PodIP {
				continue
			}
			word := func(p *Pod) int {
				switch {
				case p.DeletionTimestamp != nil:
					return 0
				case p.Status.Conditions[0].Status != "True":
					return 1
				}
				return 2
			}
			if word(q) > word(p) || word(q) == word(p) && q.CreationTimestamp.After(p.CreationTimestamp.Time) {
				beaten = true
			}
		}
		if beaten {
			continue
		}
		for i, port := range w.pool.Spec.TargetPorts {
			name := p.Name
			if len(w.pool.Spec.TargetPorts) > 1 {
				name += fmt.Sprintf("-%d", i)
			}
			state := "served"
			if p.Status.Conditions[0].Status != "True" {
				state = "starting its pod is not ready"
			}
			if p.DeletionTimestamp != nil {
				state = "draining its pod is being deleted"
			}
			lines = append(lines, fmt.Sprintf("%s %s %s %d %s", name, net.JoinHostPort(p.Status.PodIP, fmt.Sprint(port.Number)), p.UID, len(p.Annotations), state))
		}
	}
	slices.Sort(lines)
	return lines
}

// is tells the fleet in the same words.
func (w *world) is() (lines []string) {
	uids := map[string]types.UID{}
	for _, p := range w.pods {
		uids[hashed(string(p.UID))+"-0"] = p.UID
	}
	for _, m := range w.fleet.View().Workers {
		state := m.State.String() + " " + m.Status().Reason
		if w.watched[m.Name] {
			if m.State != fleet.Starting && m.State != fleet.Ready || m.Status().Reason != "" {
				w.Errorf("%s is looked after, and %s", m.Name, state)
			}
			state = "served"
		}
		engine := 0
		if m.Engine == "vllm" {
			engine = 1
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %d %s", m.Name, m.Addr, uids[m.Epoch], engine, state))
	}
	slices.Sort(lines)
	return lines
}

func (w *world) newPod(name, ip string) *Pod {
	w.uids++
	p := &Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint("u", w.uids)), Labels: map[string]string{"app": "a", "b": "c"},
		CreationTimestamp: metav1.NewTime(time.Unix(int64(w.uids), 0))}}
	p.Status.Phase, p.Status.PodIP = "Running", ip
	p.Status.Conditions = append(p.Status.Conditions, struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	}{"Ready", "True"})
	return p
}

func (w *world) newPool(selector map[string]string, ports ...int32) *InferencePool {
	w.uids++
	p := &InferencePool{ObjectMeta: metav1.ObjectMeta{Name: "large", UID: types.UID(fmt.Sprint("p", w.uids))}}
	p.Spec.Selector.MatchLabels = selector
	for _, port := range ports {
		p.Spec.TargetPorts = append(p.Spec.TargetPorts, PoolPort{port})
	}
	return p
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// happen lets something happen to the pool or a pod.
func (w *world) happen(r *rand.Rand) {
	name := pick(r, "a", "b", "c", "a-0", "e")
	old := w.pods[name]
	switch n := r.IntN(12); {
	case n == 0:
		if w.pool == nil || r.IntN(3) > 0 {
			p := w.newPool(pick(r, map[string]string{"app": "a"}, map[string]string{"app": "a", "b": "c"}, map[string]string{"b": "d"}), pick(r, []int32{1}, []int32{1, 2}, []int32{2, 3, 1})...)
			if w.pool != nil {
				p.UID = w.pool.UID
			}
			w.setPool(p)
		} else {
			w.setPool(nil)
		}
	case n == 1: // the watch has expired
		if w.store != nil {
			w.podNews = []func(){w.relist}
		}
	case old == nil:
		w.put(w.newPod(name, pick(r, "10.0.0.1", "10.0.0.2", "2001:db8::1", "10.0.0.3", "")))
	case n == 2:
		w.remove(name)
	case n == 3: // deleted and created again before anybody looks
		w.remove(name)
		w.put(w.newPod(name, old.Status.PodIP))
	default:
		p := *old
		p.Labels, p.Annotations = maps.Clone(p.Labels), nil
		p.Status.Conditions = slices.Clone(p.Status.Conditions)
		switch n {
		case 4, 5:
			p.Status.Conditions[0].Status = pick(r, "True", "False", "Unknown")
		case 6:
			p.DeletionTimestamp = &p.CreationTimestamp
		case 7:
			p.Status.Phase = pick(r, "Running", "Failed", "Succeeded")
		case 8:
			p.Labels["b"] = pick(r, "c", "d")
		case 9:
			p.Status.PodIP = pick(r, "10.0.0.1", "10.0.0.4", "")
		case 10:
			p.Annotations = map[string]string{"spokegate.io/engine": "vllm"}
		case 11:
			p.Annotations = map[string]string{Joins: pick(r, "true", "false")}
			if p.Annotations[Joins] == "false" {
				p.Annotations = nil
			}
		}
		w.put(&p)
	}
}

// TestTheFleetDependsOnTheLastStateAlone: whatever happened, in whatever order and how late it was heard of.
func TestTheFleetDependsOnTheLastStateAlone(t *testing.T) {
	settled, nobody := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		for range 120 {
			switch r.IntN(8) {
			case 0, 1:
				w.happen(r)
			case 2, 3:
				tell(&w.podNews)
			case 4:
				tell(&w.poolNews)
			case 5:
				w.look()
			case 6: // somebody has looked
				for name := range w.watched {
					w.fleet.Update(name, fleet.Ready)
				}
			case 7:
				if r.IntN(4) > 0 {
					continue
				}
				w.settle()
				want := w.oracle()
				settled++
				if len(want) == 0 {
					nobody++
				}
				if diff := cmp.Diff(want, w.is()); diff != "" {
					t.Fatalf("seed %d: %s", seed, diff)
				}
			}
		}
	}
	if settled < 1000 || settled-nobody < 300 {
		t.Errorf("%d states, of them %d with nobody", settled, nobody)
	}
}

// TestWhoStaysIsNotTouched: what was known of workers holds on while others come and go, and while the API server is away.
func TestWhoStaysIsNotTouched(t *testing.T) {
	w := newWorld(t)
	w.setPool(w.newPool(map[string]string{"app": "a"}, 1))
	w.put(w.newPod("a", "10.0.0.1"))
	w.put(w.newPod("b", "10.0.0.2"))
	w.settle()
	w.fleet.Update("a", fleet.Ready)
	w.fleet.Update("b", fleet.Ready)
	pickable := func() (names string) {
		for _, m := range w.fleet.Pickable("large") {
			names += m.Name
		}
		return names
	}
	if got := pickable(); got != "ab" {
		t.Fatal(got)
	}
	w.told("pods")(errors.New("connection refused"))
	w.settle()
	st := w.Status()
	if pickable() != "ab" || !st.Known || !strings.HasPrefix(st.Away, "pods, since 2") || !strings.HasSuffix(st.Away, ": connection refused") {
		t.Errorf("%s, %+v", pickable(), st)
	}
	if up := testutil.ToFloat64(w.metrics.up.WithLabelValues("pods")); up != 0 {
		t.Error(up)
	}
	w.told("pods")(nil)
	ends := *w.pods["b"]
	ends.DeletionTimestamp = &ends.CreationTimestamp
	w.put(&ends)
	w.put(w.newPod("c", "10.0.0.3"))
	w.settle()
	if st = w.Status(); pickable() != "a" || st.Away != "" || st.Workers != 3 || st.Pods["draining"] != 1 || st.Pods["ready"] != 2 {
		t.Errorf("%s, %+v", pickable(), st)
	}
	// A pool that cannot be used changes nothing; one that is gone, all.
	bad := w.newPool(map[string]string{"app": "a"})
	bad.UID, bad.Generation = w.pool.UID, 5
	w.setPool(bad)
	w.settle()
	if st = w.Status(); pickable() != "a" || !st.Known || st.Gone != "spec.targetPorts: 0 ports, want 1 to 8" || st.pool.generation != 5 {
		t.Errorf("%s, %+v", pickable(), st)
	}
	w.setPool(nil)
	w.settle()
	if st = w.Status(); st.Known || st.Workers != 0 || st.Gone != "there is no InferencePool large in namespace ns" {
		t.Errorf("%+v", st)
	}
	w.setPool(w.newPool(map[string]string{"app": "a"}, 2))
	w.settle()
	if got := fmt.Sprint(w.is()); got != "[a 10.0.0.1:2 u2 0 served b 10.0.0.2:2 u3 0 draining its pod is being deleted c 10.0.0.3:2 u4 0 served]" {
		t.Error(got)
	}
}

// TestASelectorIsChangedInOneStep: those of the old one are picked from until those of the new one are known.
func TestASelectorIsChangedInOneStep(t *testing.T) {
	w := newWorld(t)
	w.setPool(w.newPool(map[string]string{"app": "a"}, 1))
	w.put(w.newPod("a", "10.0.0.1"))
	w.settle()
	other := w.newPod("b", "10.0.0.2")
	other.Labels["app"] = "b"
	w.put(other)
	next := w.newPool(map[string]string{"app": "b"}, 2)
	next.UID = w.pool.UID
	w.setPool(next)
	tell(&w.poolNews)
	w.look()
	if got := fmt.Sprint(w.is()); got != "[a 10.0.0.1:1 u2 0 served]" {
		t.Error(got)
	}
	w.settle()
	if got := fmt.Sprint(w.is()); got != "[b 10.0.0.2:2 u3 0 served]" {
		t.Error(got)
	}
}
