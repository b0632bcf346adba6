package doctor

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

var kubeKinds = []Kind{
	{"kube-unreachable", "kubernetes", CannotTell, "these objects cannot be looked at", "give -kubeconfig, and an account that may list pods, services, poddisruptionbudgets, networkpolicies and inferencepools there"},
	{"kube-nothing", "kubernetes", Warning, "no pod has the label app.kubernetes.io/name: spokegate, and no pool is there", "is it the right namespace? docs/kubernetes.md"},
	{"kube-pod", "kubernetes", Fault, "it does not serve", "`kubectl describe pod` and `kubectl logs` have more than the reason beside it"},
	{"kube-restarts", "kubernetes", Warning, "it ends again and again", "`kubectl logs --previous` says how it ended; more memory, where it was killed for want of it"},
	{"kube-pool-empty", "kubernetes", Fault, "its picker has nobody to choose, and requests are answered 503", "the pool's selector must be labels that the workers' pods have"},
	{"kube-pool-port", "kubernetes", Fault, "gateways send requests past the shim, or nowhere", "targetPorts of the pool: the port of the shim's -listen (9000)"},
	{"kube-no-picker", "kubernetes", Fault, "nobody picks for the pool: with FailClose its requests are refused", "a picker (`spokegate epp -pool`), and a Service of the name in endpointPickerRef before its pods"},
	{"kube-fails-open", "kubernetes", Warning, "while the picker is away the gateway sends requests anywhere, also to workers that drain or are full", "failureMode: FailClose of endpointPickerRef"},
	{"kube-no-network-policy", "kubernetes", Warning, "every pod of the cluster reaches these: a side door to engines that listen there", "a NetworkPolicy that lets doors and pickers alone in; the chart has them (networkPolicy.enabled)"},
	{"kube-no-budget", "kubernetes", Warning, "when nodes are drained all of them may go at once", "a PodDisruptionBudget with maxUnavailable: 1; the chart has them"},
	{"kube-grace", "kubernetes", Fault, "it is killed before its requests have ended", "terminationGracePeriodSeconds longer than -drain-delay, -drain and (of a shim that starts its engine) -stop-timeout together"},
	{"kube-engine-open", "kubernetes", Warning, "the engine listens beyond its pod: a side door past keys, limits and usage, unless a NetworkPolicy closes it", "--host 127.0.0.1, or a Unix socket, for the engine beside a shim"},
	{"kube-images", "kubernetes", Note, "so it must be while one release follows another, and not for long", "let the roll-out end: `kubectl rollout status`"},
}

const (
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"
	manyRestarts   = 3
)

// judgeNamespace looks at all of it. Of kinds that were not told, nothing is said.
func (e *exam) judgeNamespace(ns namespace, told map[string]bool) {
	if !told["pods"] {
		return
	}
	ours := slices.DeleteFunc(slices.Clone(ns.pods), func(p node) bool { return p.at("metadata", "labels", nameLabel).text() != "spokegate" })
	e.say("kube-nothing", "namespace "+ns.name, len(ours)+len(ns.pools) == 0, "%d pods of ours, %d pools", len(ours), len(ns.pools))
	images := map[string]map[string]bool{}
	for _, p := range ours {
		e.judgePod(p)
		if ended(p) {
			continue
		}
		for _, c := range containers(p) {
			if c.role != "" {
				collect(images, p.at("metadata", "labels", componentLabel).text()+" "+c.name, c.image)
			}
		}
		if told["networkpolicies"] {
			e.guarded(ns, p)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(images)) {
		list := slices.Sorted(maps.Keys(images[what]))
		e.say("kube-images", what, len(list) > 1, "%s", strings.Join(list, ", "))
	}
	if told["poddisruptionbudgets"] {
		e.budgets(ns, ours)
	}
	for _, pool := range ns.pools {
		e.judgePool(ns, pool, told["services"])
	}
}

func podName(p node) string { return "pod " + p.at("metadata", "name").text() }

// judgePod looks at one pod's state, and at how long it has to end.
func (e *exam) judgePod(p node) {
	why := waits(p)
	if why != "" && elected(p) && runs(p) {
		why = "" // it stands by; that none is ready at all is found at the pool
	}
	done := p.at("status", "phase").text() == "Succeeded" || p.at("metadata", "deletionTimestamp").there()
	if !done {
		e.say("kube-pod", podName(p), why != "", "%s", orElse(why, "it is ready, or stands by"))
	}
	statuses := append(p.at("status", "initContainerStatuses").list(), p.at("status", "containerStatuses").list()...)
	for _, s := range statuses {
		n, last := s.at("restartCount").number(0), s.at("lastState", "terminated")
		e.say("kube-restarts", podName(p)+" "+s.at("name").text(), n > manyRestarts, "%.0f restarts %s", n, last.at("reason").text())
	}
	if len(p.at("spec", "containers").list()) == 0 {
		return
	}
	needed, grace := time.Duration(0), time.Duration(p.at("spec", "terminationGracePeriodSeconds").number(30))*time.Second
	shim := false
	for _, c := range containers(p) {
		needed = max(needed, ending(c))
		shim = shim || c.role == "worker"
	}
	if needed > 0 {
		e.say("kube-grace", podName(p), grace < needed, "it has %v, and may take %v", grace, needed)
	}
	for _, c := range containers(p) {
		if h := c.flags["host"]; shim && c.role == "" && h != "" {
			e.say("kube-engine-open", podName(p)+" "+c.name, h == "0.0.0.0" || h == "::", "its engine listens at %s", h)
		}
	}
}

// ending is how long one of our processes may take to end; the defaults are those of its flags.
func ending(c container) time.Duration {
	switch c.role {
	case "worker":
		t := c.lasts("drain-delay", 2*time.Second) + c.lasts("drain", 30*time.Second)
		if c.flags["attach"] == "" {
			t += c.lasts("stop-timeout", 30*time.Second)
		}
		return t
	case "epp":
		return c.lasts("drain-delay", 5*time.Second) + c.lasts("drain", 30*time.Second)
	case "envoy":
		return c.lasts("drain-delay", 5*time.Second) + c.lasts("drain", 5*time.Minute)
	}
	return 0
}

// waits says why a pod is not ready; empty: it is.
func waits(p node) string {
	why := ""
	for _, c := range p.at("status", "conditions").list() {
		if t := c.at("type").text(); (t == "Ready" || t == "PodScheduled") && c.at("status").text() != "True" {
			why = strings.TrimSpace(fmt.Sprintf("%s: %s %s", t, c.at("reason").text(), c.at("message").text()))
			if t == "PodScheduled" {
				return why
			}
		} else if t == "Ready" {
			return ""
		}
	}
	for _, key := range []string{"initContainerStatuses", "containerStatuses"} {
		for _, s := range p.at("status", key).list() {
			if w := s.at("state", "waiting"); w.there() {
				return fmt.Sprintf("container %s: %s %s", s.at("name").text(), w.at("reason").text(), w.at("message").text())
			}
		}
	}
	return orElse(why, "it has not begun")
}

// elected says that a pod is a picker of which only one is ready, by a lease.
func elected(p node) bool {
	return slices.ContainsFunc(containers(p), func(c container) bool {
		on, given := c.flags["leader-elect"]
		return c.role == "epp" && given && on != "false"
	})
}

// runs says that all containers of a pod do.
func runs(p node) bool {
	list := p.at("status", "containerStatuses").list()
	return len(list) > 0 && !slices.ContainsFunc(list, func(s node) bool { return !s.at("state", "running").there() })
}

// ended says that a pod runs no more and is kept to be looked at: a job's.
func ended(p node) bool {
	phase := p.at("status", "phase").text()
	return phase == "Succeeded" || phase == "Failed"
}

// guarded wants a NetworkPolicy for who comes in.
func (e *exam) guarded(ns namespace, p node) {
	if p.at("metadata", "labels", componentLabel).text() != "worker" {
		return
	}
	held := slices.ContainsFunc(ns.policies, func(n node) bool {
		types := n.at("spec", "policyTypes").texts()
		return (len(types) == 0 || slices.Contains(types, "Ingress")) && selects(n.at("spec", "podSelector"), p.at("metadata", "labels"))
	})
	e.say("kube-no-network-policy", podName(p), !held, "who comes in is %s", map[bool]string{true: "bounded", false: "not bounded"}[held])
}

// budgets wants one for every component of which there are several that serve: of elected pickers another stands by.
func (e *exam) budgets(ns namespace, ours []node) {
	count, without := map[string]int{}, map[string]bool{}
	for _, p := range ours {
		what := p.at("metadata", "labels", componentLabel).text()
		if what == "hub" || what == "" || ended(p) || elected(p) {
			continue
		}
		count[what]++
		if !slices.ContainsFunc(ns.budgets, func(b node) bool { return selects(b.at("spec", "selector"), p.at("metadata", "labels")) }) {
			without[what] = true
		}
	}
	for _, what := range slices.Sorted(maps.Keys(count)) {
		if count[what] > 1 {
			e.say("kube-no-budget", "component "+what, without[what], "of %d pods", count[what])
		}
	}
}

// judgePool looks at an InferencePool, its pods and its picker.
func (e *exam) judgePool(ns namespace, pool node, services bool) {
	where := "pool " + pool.at("metadata", "name").text()
	var members []node
	for _, p := range ns.pods {
		if selects(pool.at("spec", "selector"), p.at("metadata", "labels")) {
			members = append(members, p)
		}
	}
	e.say("kube-pool-empty", where, len(members) == 0, "its selector takes %d pods", len(members))
	e.poolPort(where, pool, members)
	ref := pool.at("spec", "endpointPickerRef")
	e.say("kube-fails-open", where, ref.at("failureMode").text() == "FailOpen", "failureMode is %s", orElse(ref.at("failureMode").text(), "FailClose"))
	if !services {
		return
	}
	name, ready := ref.at("name").text(), 0
	i := slices.IndexFunc(ns.services, func(s node) bool { return s.at("metadata", "name").text() == name })
	if i < 0 {
		e.found("kube-no-picker", where, "there is no service %s", name)
		return
	}
	picked := node{map[string]any{"matchLabels": ns.services[i].at("spec", "selector").v}}
	for _, p := range ns.pods {
		if selects(picked, p.at("metadata", "labels")) && waits(p) == "" {
			ready++
		}
	}
	e.say("kube-no-picker", where, ready == 0, "behind the service %s %d pods are ready", name, ready)
}

// poolPort: where pods have a shim, its port is the pool's.
func (e *exam) poolPort(where string, pool node, members []node) {
	var targets []float64
	for _, t := range pool.at("spec", "targetPorts").list() {
		targets = append(targets, t.at("number").number(0))
	}
	for _, p := range members {
		for _, c := range containers(p) {
			if c.role != "worker" {
				continue
			}
			_, text, err := net.SplitHostPort(c.flags["listen"])
			port, bad := strconv.ParseFloat(text, 64)
			if err == nil && bad == nil {
				e.say("kube-pool-port", where, !slices.Contains(targets, port), "its target ports are %v; the shim of %s listens at %.0f", targets, podName(p), port)
			}
		}
	}
}
