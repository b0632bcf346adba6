package kube

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/roster"
)

// pool is what is kept of an InferencePool.
type pool struct {
	uid, version string // of the object, and of this state of it
	generation   int64
	selector     string
	ports        []int32
	picker       *PickerRef
	status       json.RawMessage
}

// mostPorts is how many ports a pool may have.
const mostPorts = 8

// poolOf is strict: a pool that says less than which pods and ports are meant would be another pool than its owner's.
func poolOf(o *InferencePool) (*pool, error) {
	p := &pool{uid: string(o.UID), version: o.ResourceVersion, generation: o.Generation, picker: o.Spec.EndpointPickerRef, status: o.Status}
	if len(o.Spec.Selector.MatchLabels) == 0 {
		return p, errors.New("spec.selector.matchLabels is empty: it would match all pods")
	}
	// As the API server reads it, so that a mistake is seen here and not by a watch that is refused.
	set, err := labels.ValidatedSelectorFromSet(o.Spec.Selector.MatchLabels)
	if err != nil {
		return p, fmt.Errorf("spec.selector.matchLabels: %w", err)
	}
	p.selector = set.String()
	if n := len(o.Spec.TargetPorts); n == 0 || n > mostPorts {
		return p, fmt.Errorf("spec.targetPorts: %d ports, want 1 to %d", n, mostPorts)
	}
	for _, port := range o.Spec.TargetPorts {
		if port.Number < 1 || port.Number > 65535 || slices.Contains(p.ports, port.Number) {
			return p, fmt.Errorf("spec.targetPorts: %d: want each of 1 to 65535, and once", port.Number)
		}
		p.ports = append(p.ports, port.Number)
	}
	return p, nil
}

// found is what a pool and its pods come to.
type found struct {
	workers    []roster.Worker // sorted by name
	pods       map[string]int  // by state
	problems   []string        // sorted: pods left out, annotations not taken
	undeclared []int32         // target ports that no ready pod declares
}

// find makes workers of pods: each port of each that has an address. Where there are more than a fleet takes, those that serve
// stay before those that do not, and old ones before new ones: who makes many pods puts nobody out.
func find(p *pool, all map[string]pod, endpoint string) found {
	f := found{pods: map[string]int{}}
	if p == nil {
		return f
	}
	var pods []pod
	declared := map[int32]bool{}
	for _, is := range all {
		state := is.state()
		f.pods[state]++
		for _, note := range is.notes {
			f.problems = append(f.problems, "pod "+is.name+": "+note)
		}
		switch state {
		case "left_out":
			f.problems = append(f.problems, "pod "+is.name+" is left out: "+is.out)
		case "ready", "not_ready", "draining":
			if is.ip != "" {
				pods = append(pods, is)
			}
		}
		for _, port := range is.ports {
			declared[port] = declared[port] || state == "ready"
		}
	}
	pods = f.apart(pods)
	slices.SortFunc(pods, func(a, b pod) int {
		return cmp.Or(a.rank()-b.rank(), a.created.Compare(b.created), strings.Compare(a.name, b.name))
	})
	trial := fleet.NewTrial()
	for _, is := range pods {
		f.take(trial, p, is, endpoint)
	}
	for _, port := range p.ports {
		if !declared[port] && f.pods["ready"] > 0 {
			f.undeclared = append(f.undeclared, port)
		}
	}
	slices.SortFunc(f.workers, func(a, b roster.Worker) int { return strings.Compare(a.Worker.Name, b.Worker.Name) })
	slices.Sort(f.problems)
	return f
}

// apart leaves one pod an address. One that stays is believed before one that goes, one that serves before one that does not, as
// where both have their node's; and then a new one before an old one, whose word is late.
func (f *found) apart(pods []pod) (left []pod) {
	slices.SortFunc(pods, func(a, b pod) int {
		return cmp.Or(a.rank()-b.rank(), b.created.Compare(a.created), strings.Compare(a.name, b.name))
	})
	at := map[string]string{}
	for _, is := range pods {
		other, taken := at[is.ip]
		switch {
		case !taken:
			at[is.ip] = is.name
			left = append(left, is)
		case !is.deleting: // else its successor is here
			f.problems = append(f.problems, fmt.Sprintf("pod %s is left out: its address %s is that of pod %s", is.name, is.ip, other))
		}
	}
	return left
}

// take adds the workers of a pod.
func (f *found) take(trial fleet.Trial, p *pool, is pod, endpoint string) {
	for i, port := range p.ports {
		suffix := ""
		if len(p.ports) > 1 {
			suffix = "-" + strconv.Itoa(i)
		}
		w, err := is.worker(endpoint, suffix, port, i)
		if err == nil {
			err = trial.Join(w.Worker)
		}
		if err != nil {
			f.problems = append(f.problems, fmt.Sprintf("pod %s is left out at port %d: %v", is.name, port, err))
			continue
		}
		f.workers = append(f.workers, w)
	}
}

// worker is the pod at one of its ports, the index-th of the pool.
func (p *pod) worker(endpoint, suffix string, port int32, index int) (w roster.Worker, err error) {
	e := p.entry
	e.Name, e.Address = shortened(p.name, suffix), net.JoinHostPort(p.ip, strconv.Itoa(int(port)))
	// Each port has the ranks of an engine of its own, or is one rank; of ranks each publishes at the next port.
	by := index * int(max(e.Ranks, 1))
	if e.KVEvents, err = shifted(e.KVEvents, by); err != nil {
		return w, err
	}
	if e.KVReplay, err = shifted(e.KVReplay, by); err != nil {
		return w, err
	}
	if w, err = e.Worker(endpoint); err != nil {
		return w, err
	}
	w.Worker.Epoch = hashed(p.uid) + "-" + strconv.Itoa(int(p.restarts))
	switch {
	case p.deleting:
		w.Held, w.Why = fleet.Draining, "its pod is being deleted"
	case !p.ready:
		w.Held, w.Why = fleet.Starting, "its pod is not ready"
	}
	return w, nil
}

// longestName is a worker's.
const longestName = 64

// shortened is a name that is as unique as the pod's, and fits.
func shortened(name, suffix string) string {
	if len(name)+len(suffix) <= longestName {
		return name + suffix
	}
	hash := hashed(name)
	return name[:longestName-len(suffix)-len(hash)-1] + "-" + hash + suffix
}

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:5])
}

// shifted is an endpoint with a higher port.
func shifted(endpoint string, by int) (string, error) {
	if endpoint == "" || by == 0 {
		return endpoint, nil
	}
	at := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[at+1:])
	if err != nil || port+by > 65535 {
		return "", fmt.Errorf("%s: there is no port %d above it", endpoint, by)
	}
	return endpoint[:at+1] + strconv.Itoa(port+by), nil
}
