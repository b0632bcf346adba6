package doctor

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// rendered reads a shape of the chart and makes of each workload the pods that a cluster would, all of them ready.
func rendered(t *testing.T, file string) (ns namespace) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for objects := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var m map[string]any
		if err := objects.Decode(&m); errors.Is(err, io.EOF) {
			return ns
		} else if err != nil {
			t.Fatal(err)
		}
		switch o := (node{m}); o.at("kind").text() {
		case "Deployment", "StatefulSet":
			for i := range max(1, int(numberOf(o.at("spec", "replicas")))) {
				ns.pods = append(ns.pods, podOf(o, i))
			}
		case "Service":
			ns.services = append(ns.services, o)
		case "PodDisruptionBudget":
			ns.budgets = append(ns.budgets, o)
		case "NetworkPolicy":
			ns.policies = append(ns.policies, o)
		case "InferencePool":
			ns.pools = append(ns.pools, numbers(o))
		}
	}
}

// podOf is a pod of a workload, ready.
func podOf(o node, i int) node {
	t := o.at("spec", "template")
	meta := maps.Clone(t.at("metadata").v.(map[string]any))
	meta["name"] = o.at("metadata", "name").text() + "-" + string(rune('0'+i))
	return numbers(node{map[string]any{"metadata": meta, "spec": t.at("spec").v, "status": map[string]any{"phase": "Running",
		"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}})
}

// numbers makes YAML's integers what JSON has.
func numbers(n node) node {
	switch v := n.v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = numbers(node{x}).v
		}
		return node{out}
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = numbers(node{x}).v
		}
		return node{out}
	case uint64:
		return node{float64(v)}
	}
	return n
}

func numberOf(n node) float64 { return numbers(n).number(1) }

var allTold = map[string]bool{"pods": true, "services": true, "poddisruptionbudgets": true, "networkpolicies": true, "inferencepools": true}

func judged(ns namespace) Report {
	e := &exam{}
	e.judgeNamespace(ns, allTold)
	return e.report()
}

// TestTheChartIsFine: what is shipped has none of the mistakes that doctor looks for. The engines of spoke-pickers are its user's, and
// not in the chart, so that its pool is empty there.
func TestTheChartIsFine(t *testing.T) {
	files, err := filepath.Glob("../deploy/yaml/spoke-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			ns := rendered(t, f)
			wantIDs(t, without(judged(ns), []string{"kube-pool-empty"}))
		})
	}
}

// TestMistakesInACluster makes one at a time in what is shipped.
func TestMistakesInACluster(t *testing.T) {
	for name, c := range map[string]struct {
		change func(ns *namespace)
		wants  []string
	}{
		"no network policies": {func(ns *namespace) { ns.policies = nil }, []string{"kube-no-network-policy"}},
		"no budgets":          {func(ns *namespace) { ns.budgets = nil }, []string{"kube-no-budget"}},
		"a short end":         {func(ns *namespace) { ns.pods[0].at("spec").v.(map[string]any)["terminationGracePeriodSeconds"] = 10.0 }, []string{"kube-grace"}},
		"another image": {func(ns *namespace) {
			for _, c := range ns.pods[0].at("spec", "containers").list() {
				c.v.(map[string]any)["image"] = "spokegate:other"
			}
		}, []string{"kube-images"}},
		"not ready": {func(ns *namespace) {
			ns.pods[0].v.(map[string]any)["status"] = map[string]any{"phase": "Pending", "containerStatuses": []any{
				map[string]any{"name": "shim", "restartCount": 9.0, "lastState": map[string]any{"terminated": map[string]any{"reason": "OOMKilled"}},
					"state": map[string]any{"waiting": map[string]any{"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}}}}
		}, []string{"kube-pod", "kube-restarts"}},
		"nothing": {func(ns *namespace) { *ns = namespace{} }, []string{"kube-nothing"}},
		"a pool past the shims": {func(ns *namespace) {
			ns.pools = []node{{map[string]any{"metadata": map[string]any{"name": "p"}, "spec": map[string]any{
				"selector":          map[string]any{"matchLabels": map[string]any{componentLabel: "worker"}},
				"targetPorts":       []any{map[string]any{"number": 8000.0}},
				"endpointPickerRef": map[string]any{"name": "nobody", "failureMode": "FailOpen"}}}}}
		}, []string{"kube-pool-port", "kube-no-picker", "kube-fails-open"}},
		"a pool of nobody": {func(ns *namespace) {
			ns.pools = []node{{map[string]any{"metadata": map[string]any{"name": "p"}, "spec": map[string]any{
				"selector":          map[string]any{"matchLabels": map[string]any{"app": "gone"}},
				"endpointPickerRef": map[string]any{"name": ns.services[0].at("metadata", "name").text()}}}}}
		}, []string{"kube-pool-empty"}},
		"an open engine": {func(ns *namespace) {
			p := ns.pods[slices.IndexFunc(ns.pods, func(p node) bool { return p.at("metadata", "labels", componentLabel).text() == "worker" })]
			spec := p.at("spec").v.(map[string]any)
			spec["containers"] = append(spec["containers"].([]any), map[string]any{"name": "vllm", "args": []any{"serve", "m", "--host", "0.0.0.0"}})
		}, []string{"kube-engine-open"}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := rendered(t, "../deploy/yaml/spoke-minimal.yaml")
			c.change(&ns)
			wantIDs(t, judged(ns), c.wants...)
		})
	}
}

// TestJobsThatFailed are told of, and nothing is wanted of them any more: no budget, and not the image of today.
func TestJobsThatFailed(t *testing.T) {
	ns := rendered(t, "../deploy/yaml/spoke-minimal.yaml")
	for _, image := range []string{"spokegate:1", "spokegate:2"} {
		ns.pods = append(ns.pods, node{map[string]any{"metadata": map[string]any{"name": image, "labels": map[string]any{nameLabel: "spokegate", componentLabel: "reconcile"}},
			"spec":   map[string]any{"containers": []any{map[string]any{"name": "reconcile", "image": image, "args": []any{"usage", "reconcile"}}}},
			"status": map[string]any{"phase": "Failed", "conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "PodFailed"}}}}})
	}
	wantIDs(t, judged(ns), "kube-pod")
}

// TestPickersThatStandBy are not ready on purpose; one that cannot run is a fault, and so is that none leads.
func TestPickersThatStandBy(t *testing.T) {
	unready := func(p node, state string) {
		p.v.(map[string]any)["status"] = map[string]any{"phase": "Running",
			"conditions":        []any{map[string]any{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}},
			"containerStatuses": []any{map[string]any{"name": "picker", "state": map[string]any{state: map[string]any{"reason": "r"}}}}}
	}
	for _, c := range []struct {
		pods  []int
		state string
		want  []string
	}{
		{[]int{1}, "running", nil},
		{[]int{1}, "waiting", []string{"kube-pod"}},
		{[]int{0, 1}, "running", []string{"kube-no-picker"}},
	} {
		ns := rendered(t, "../deploy/yaml/spoke-pickers.yaml")
		for _, i := range c.pods {
			unready(ns.pods[i], c.state)
		}
		wantIDs(t, without(judged(ns), []string{"kube-pool-empty"}), c.want...)
	}
}

// TestEndsByDefault: who is given no time takes that of the flag's default, and an Envoy that is not ours is not asked.
func TestEndsByDefault(t *testing.T) {
	for _, c := range []struct {
		args  []any
		grace float64
		bad   bool
	}{
		{[]any{"envoy", "run"}, 304, true},
		{[]any{"envoy", "run"}, 305, false},
		{[]any{"worker", "-attach=x"}, 31, true},
		{[]any{"worker", "-attach=x"}, 32, false},
		{[]any{"epp"}, 34, true},
		{[]any{"epp"}, 35, false},
		{[]any{"envoy", "-c", "x"}, 1, false},
	} {
		e := &exam{}
		e.judgePod(node{map[string]any{"spec": map[string]any{"terminationGracePeriodSeconds": c.grace,
			"containers": []any{map[string]any{"name": "c", "args": c.args}}}}})
		if got := e.report().Has("kube-grace"); got != c.bad {
			t.Errorf("%v with %.0f s: %v", c.args, c.grace, got)
		}
	}
}

// TestWhatAnAccountMayNot: a list that is forbidden is a finding, and the others are looked at.
func TestWhatAnAccountMayNot(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/networkpolicies"):
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"message":"networkpolicies is forbidden"}`))
		case strings.HasSuffix(r.URL.Path, "/inferencepools"):
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write([]byte(`{"items":[]}`))
		}
	}))
	defer api.Close()
	file := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \"" + api.URL +
		"\"}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := examine(t, Target{Kube: "gpu", KubeConfig: file})
	wantIDs(t, r, "kube-unreachable", "kube-nothing")
	if f := find(r, "kube-unreachable"); f == nil || !strings.Contains(f.Where, "networkpolicies") || f.Saw != "403 networkpolicies is forbidden" {
		t.Errorf("%+v", f)
	}
	r = examine(t, Target{Kube: "gpu", KubeConfig: "/nowhere/config"})
	wantIDs(t, r, "kube-unreachable")
}
