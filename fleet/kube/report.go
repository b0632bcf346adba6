package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Picking is the condition of a pool that only this picker writes: somebody can be picked.
const Picking = Prefix + "Picking"

// controller names who wrote an entry.
const controller = Prefix + "picker"

// Reporter writes into the pool's status how this picker does with it: one entry, whose parent is the picker that the pool names.
// It writes nothing that stands there already, and no entry of another.
type Reporter struct {
	Source *Source
	// Pickable is how many workers can be picked now; Leads, whether it is for this process to write.
	Pickable   func() int
	Leads      func() bool
	Log        *slog.Logger
	Registerer prometheus.Registerer

	written string // the pool's version that was written over: until another is seen, what is there is ours
	failed  string // logged last
}

// reportEvery is how often it is looked what is to be said, and so how often the status is written at most.
const reportEvery = 2 * time.Second

// entry is one of the status' parents.
type entry struct {
	ParentRef struct {
		Group     string `json:"group"`
		Kind      string `json:"kind"`
		Name      string `json:"name"`
		Namespace string `json:"namespace,omitempty"`
	} `json:"parentRef"`
	Controller string             `json:"controllerName,omitempty"`
	Conditions []metav1.Condition `json:"conditions"`
}

// Run writes until ctx is done. What it wrote last stays then.
func (r *Reporter) Run(ctx context.Context) error {
	writes := promauto.With(r.Registerer).NewCounterVec(prometheus.CounterOpts{Name: "spokegate_pool_status_writes_total",
		Help: "Writes of the pool's status, by result: ok, conflict (another wrote it in the same moment; it is tried again), failed."}, []string{"result"})
	for _, result := range []string{"ok", "conflict", "failed"} {
		writes.WithLabelValues(result)
	}
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		st := r.Source.Status()
		if !st.Known || st.pool == nil || st.Away != "" || st.pool.version == r.written || !r.Leads() {
			continue
		}
		if patch := patched(st, r.Pickable(), time.Now()); patch != nil {
			writes.WithLabelValues(r.write(ctx, st.pool.version, patch)).Inc()
		}
	}
}

// write is conditional on the pool's version: whoever was first, nothing of theirs is lost.
func (r *Reporter) write(ctx context.Context, version string, patch []byte) (result string) {
	ask, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s := r.Source
	err := s.Client.pools.Patch(types.MergePatchType).Namespace(s.Namespace).Resource("inferencepools").Name(s.Pool).SubResource("status").
		Body(patch).Do(ask).Error()
	switch {
	case err == nil:
		r.written, r.failed = version, ""
		return "ok"
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return "conflict" // the watch brings what was written
	}
	if err.Error() != r.failed && !errors.Is(err, context.Canceled) {
		r.failed = err.Error()
		r.Log.Warn("the pool's status cannot be written", "pool", s.Pool, "error", err)
	}
	return "failed"
}

// patched is what has to be written, if anything. Entries of others stay byte for byte.
func patched(st Status, pickable int, now time.Time) []byte {
	var is struct {
		Parents []json.RawMessage `json:"parents"`
	}
	if len(st.pool.status) > 0 && json.Unmarshal(st.pool.status, &is) != nil {
		return nil // of a kind that we do not know
	}
	parents, before, ours := []json.RawMessage{}, entry{}, 0
	for _, raw := range is.Parents {
		var e entry
		if json.Unmarshal(raw, &e) == nil && e.ours() {
			before = e
			ours++
			continue
		}
		parents = append(parents, raw)
	}
	want, said := said(st, pickable)
	switch {
	case !said && ours == 0:
		return nil
	case said:
		if same := want.as(&before, now); same && ours == 1 {
			return nil
		}
		raw, err := json.Marshal(want)
		if err != nil {
			return nil
		}
		parents = append(parents, raw)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": st.pool.version},
		"status":   map[string]any{"parents": parents},
	})
	if err != nil {
		return nil
	}
	return patch
}

// ours: it has the condition that nobody else writes.
func (e *entry) ours() bool {
	for _, c := range e.Conditions {
		if c.Type == Picking {
			return true
		}
	}
	return false
}

// as says that an entry is there already; if not, the times of its conditions are set: those of what has not changed stay.
func (e *entry) as(before *entry, now time.Time) bool {
	same := e.ParentRef == before.ParentRef && len(e.Conditions) == len(before.Conditions)
	for i := range e.Conditions {
		c := &e.Conditions[i]
		c.LastTransitionTime = metav1.NewTime(now)
		found := false
		for _, b := range before.Conditions {
			if b.Type != c.Type {
				continue
			}
			if b.Status == c.Status {
				c.LastTransitionTime = b.LastTransitionTime
			}
			found = b.Status == c.Status && b.Reason == c.Reason && b.Message == c.Message && b.ObservedGeneration == c.ObservedGeneration
		}
		same = same && found
	}
	return same
}

// said is what this picker has to say of the pool. A pool that names no picker is nobody's to answer for.
func said(st Status, pickable int) (e entry, is bool) {
	ref := st.pool.picker
	if ref == nil || ref.Name == "" {
		return e, false
	}
	e.ParentRef.Group, e.ParentRef.Kind, e.ParentRef.Name, e.Controller = ref.Group, ref.Kind, ref.Name, controller
	add := func(kind string, yes bool, reason, message string) {
		status := metav1.ConditionFalse
		if yes {
			status = metav1.ConditionTrue
		}
		e.Conditions = append(e.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: st.pool.generation})
	}
	if st.Gone == "" {
		add("Accepted", true, "Accepted", "spokegate epp picks for this pool")
	} else {
		add("Accepted", false, "Invalid", st.Gone)
	}
	if ref.Kind == "Service" && ref.Group == "" {
		add("ResolvedRefs", true, "ResolvedRefs", "the picker is a Service")
	} else {
		add("ResolvedRefs", false, "InvalidExtensionRef", fmt.Sprintf("endpointPickerRef: %s: want a Service", ref.Kind))
	}
	yes, reason, message := st.picking(pickable)
	add(Picking, yes, reason, message)
	return e, true
}

// picking says whether somebody can be picked, and else the first thing that somebody should look at.
func (st Status) picking(pickable int) (yes bool, reason, message string) {
	total := 0
	for _, n := range st.Pods {
		total += n
	}
	switch {
	case pickable > 0:
		return true, "WorkersReady", "workers can be picked"
	case total == 0:
		return false, "NoPodsMatch", "no pod has the labels " + st.pool.selector
	case st.Pods["ready"] == 0 && st.Pods["left_out"] > 0 && len(st.Problems) > 0:
		return false, "PodsLeftOut", st.Problems[0]
	case st.Pods["ready"] == 0:
		return false, "NoPodReady", "pods match, and none of them is ready"
	case len(st.undeclared) > 0:
		return false, "TargetPortNotDeclared", fmt.Sprintf("no worker answers, and no ready pod declares port %s", joined(st.undeclared))
	}
	return false, "NoWorkerAnswers", fmt.Sprintf("pods are ready, and no worker of them answers at port %s", joined(st.pool.ports))
}

func joined(ports []int32) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ports)), ", "), "[]")
}
