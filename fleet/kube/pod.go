package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/roster"
)

// Prefix of our annotations of pods. They have the meaning of the fields of a workers file, but for Joins.
const Prefix = "spokegate.io/"

// Joins is the annotation of a pod whose workers join by themselves, by a shim: "true".
const Joins = Prefix + "joins"

// roleLabel is what llm-d tells roles by.
const roleLabel = "llm-d.ai/role"

// pod is what is kept of a Pod: a few hundred bytes.
type pod struct {
	name, uid, ip          string
	created                time.Time
	ready, deleting, ended bool
	restarts               int32   // of its containers: each is another run of what is in them
	ports                  []int32 // that its containers declare
	joins                  bool
	entry                  roster.Entry // by its annotations
	out                    string       // why it is left out; empty: it is not
	notes                  []string     // which annotations are not taken, and why
}

func podOf(o *Pod) pod {
	p := pod{name: o.Name, uid: string(o.UID), ip: o.Status.PodIP, created: o.CreationTimestamp.Time, deleting: o.DeletionTimestamp != nil,
		ended: o.Status.Phase == "Failed" || o.Status.Phase == "Succeeded"}
	for _, c := range o.Status.Conditions {
		p.ready = p.ready || c.Type == "Ready" && c.Status == "True"
	}
	for _, c := range slices.Concat(o.Status.InitContainerStatuses, o.Status.ContainerStatuses) {
		p.restarts += c.RestartCount
	}
	for _, c := range slices.Concat(o.Spec.InitContainers, o.Spec.Containers) {
		for _, port := range c.Ports {
			p.ports = append(p.ports, port.ContainerPort)
		}
	}
	p.annotated(o.Annotations, o.Labels[roleLabel])
	return p
}

// fields are the annotations that say of a worker what a file would, in the order in which they are judged.
var fields = []struct {
	name string
	set  func(e *roster.Entry, value string) error
}{
	{"engine", func(e *roster.Entry, v string) error { e.Engine = v; return nil }},
	{"block-size", func(e *roster.Entry, v string) error { return number(&e.BlockSize, v) }},
	{"ranks", func(e *roster.Entry, v string) error { return number(&e.Ranks, v) }},
	{"metrics", func(e *roster.Entry, v string) error { e.Metrics = v; return nil }},
	{"kv-events", func(e *roster.Entry, v string) error { e.KVEvents = v; return own(v) }},
	{"kv-replay", func(e *roster.Entry, v string) error { e.KVReplay = v; return own(v) }},
}

// own: who may make a pod does not have a picker call other hosts.
func own(endpoint string) error {
	if !strings.HasPrefix(endpoint, "tcp://*:") {
		return fmt.Errorf("%q: want tcp://*:PORT, for a pod tells of itself alone", endpoint)
	}
	return nil
}

// Bounds of what a pod may say, for each step keeps and tells all of it: bytes of an annotation, and notes.
const (
	mostValue = 253
	mostNotes = 8
)

func number(into *uint32, value string) error {
	n, err := strconv.ParseUint(value, 10, 32)
	*into = uint32(n)
	if err != nil {
		return fmt.Errorf("%q: want a number", value)
	}
	return nil
}

// annotated reads what operators say. A pod is used without an annotation that is wrong, for it serves all the same. It is left
// out where that is not sure: its role or whether it joins by itself is not understood.
func (p *pod) annotated(annotations map[string]string, role string) {
	switch v := annotations[Joins]; v {
	case "true":
		p.joins = true
		return
	case "", "false":
	default:
		p.out = fmt.Sprintf("annotation %s %.64q: want true or false", Joins, v)
		return
	}
	known := []string{Joins, Prefix + "role"}
	for _, f := range fields {
		known = append(known, Prefix+f.name)
		v, said := annotations[Prefix+f.name]
		if !said {
			continue
		}
		try := p.entry
		err := error(nil)
		if len(v) > mostValue {
			err = fmt.Errorf("%d bytes: want at most %d", len(v), mostValue)
		} else if err = f.set(&try, v); err == nil {
			err = judge(try)
		}
		if err != nil {
			p.notes = append(p.notes, fmt.Sprintf("annotation %s%s is not taken: %v", Prefix, f.name, err))
			continue
		}
		p.entry = try
	}
	for key := range annotations {
		if strings.HasPrefix(key, Prefix) && !slices.Contains(known, key) {
			p.notes = append(p.notes, fmt.Sprintf("annotation %s is not known", key))
		}
	}
	slices.Sort(p.notes)
	if n := len(p.notes); n > mostNotes {
		p.notes = append(slices.Clone(p.notes[:mostNotes]), fmt.Sprintf("%d more annotations are not taken", n-mostNotes))
	}
	p.role(annotations[Prefix+"role"], role)
}

// judge says what is wrong with an entry beside the name and the address, which are given here.
func judge(e roster.Entry) error {
	e.Name, e.Address = "a", "10.0.0.1:1"
	w, err := e.Worker("a")
	if err != nil {
		return err
	}
	return fleet.NewTrial().Join(w.Worker)
}

// role understands the annotation, or else the label of llm-d.
func (p *pod) role(annotation, label string) {
	where, value := Prefix+"role", cmp.Or(annotation, label)
	if annotation == "" {
		where = roleLabel
	}
	switch value {
	case fleet.RolePrefill, fleet.RoleDecode:
		p.entry.Role = value
	case "", "both", "prefill-decode":
	default:
		p.out = fmt.Sprintf("%s %.64q: want %s, %s or both", where, value, fleet.RolePrefill, fleet.RoleDecode)
	}
}

// state is a word for people and metrics.
func (p *pod) state() string {
	switch {
	case p.joins:
		return "joins"
	case p.ended:
		return "ended"
	case p.out != "":
		return "left_out"
	case p.deleting:
		return "draining"
	case p.ip == "":
		return "no_address"
	case p.ready:
		return "ready"
	}
	return "not_ready"
}

// rank is lower of a pod whose word counts more.
func (p *pod) rank() int {
	switch {
	case p.deleting:
		return 2
	case !p.ready:
		return 1
	}
	return 0
}

// States are all that Status.Pods counts by.
var States = []string{"ready", "not_ready", "draining", "no_address", "ended", "joins", "left_out"}
