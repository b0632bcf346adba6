//go:build kube

package kube

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokegate/spokegate/test/kube/rig"
)

// TestPool: a picker follows a pool and its pods, as the API server tells of them, by the role that is documented.
func TestPool(t *testing.T) {
	l := newPoolLab(t)
	const gateway = `{"status": {"parents": [{"parentRef": {"name": "gateway"}, "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]}}`
	l.patch(gateway, "status")
	p := l.picker("-pool-status", "-leader-elect")
	p.servingIs(true) // nobody is there, and that is known
	p.names(nobody)
	l.conditionsAre("Accepted=True/Accepted@true ResolvedRefs=True/ResolvedRefs@true spokegate.io/Picking=False/NoPodsMatch@true", 2)

	l.enginePod("a", "127.0.1.1", nil, 8000, 8001)
	p.names("127.0.1.1:8000")
	l.conditionsAre("Accepted=True/Accepted@true ResolvedRefs=True/ResolvedRefs@true spokegate.io/Picking=True/WorkersReady@true", 2)
	l.enginePod("b", "127.0.1.2", map[string]string{"spokegate.io/engine": "sim", "spokegate.io/block-size": "many"}, 8000)
	p.names("127.0.1.1:8000", "127.0.1.2:8000")
	p.pageHas("/readyz", "pool "+l.ns+"/llama: 2 workers; pods: 2 ready, no others", `pod b: annotation spokegate.io/block-size is not taken: "many": want a number`, "leader: this picker")
	p.pageHas("/metrics", `spokegate_pool_pods{state="ready"} 2`, "spokegate_pool_problems 1", "spokegate_pool_known 1", "spokegate_pool_leader 1",
		`spokegate_pool_api_up{resource="pods"} 1`)

	l.status("a", "127.0.1.1", false)
	p.names("127.0.1.2:8000")
	p.pageHas("/readyz", "worker a: starting: its pod is not ready")
	l.status("a", "127.0.1.1", true)
	p.names("127.0.1.1:8000", "127.0.1.2:8000")

	l.remove("b", 600)
	p.names("127.0.1.1:8000")
	p.pageHas("/readyz", "worker b: draining: its pod is being deleted")
	l.pod("c", "127.0.1.2", nil) // its address, and its engine
	p.names("127.0.1.1:8000", "127.0.1.2:8000")
	l.remove("b", 0)
	p.pageHas("/readyz", "2 workers; pods: 2 ready, no others")

	l.enginePod("six", "::1", map[string]string{"spokegate.io/joins": "true"}, 8000)
	p.pageHas("/readyz", "pods: 2 ready, 1 joins")
	l.remove("six", 0)
	l.pod("seven", "::1", nil)
	p.names("127.0.1.1:8000", "127.0.1.2:8000", "[::1]:8000")

	l.patch(`{"spec": {"targetPorts": [{"number": 8001}, {"number": 8000}]}}`)
	p.names("127.0.1.1:8000", "127.0.1.1:8001", "127.0.1.2:8000", "[::1]:8000")
	l.conditionsAre("Accepted=True/Accepted@true ResolvedRefs=True/ResolvedRefs@true spokegate.io/Picking=True/WorkersReady@true", 2)
	p.pageHas("/readyz", "worker c-0: starting")
	l.patch(`{"spec": {"selector": {"matchLabels": {"app": "other"}}}}`)
	p.names(nobody)
	l.patch(`{"spec": {"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": 8000}]}}`)
	p.names("127.0.1.1:8000", "127.0.1.2:8000", "[::1]:8000")

	if err := cluster.Dynamic.Resource(pools).Namespace(l.ns).Delete(t.Context(), "llama", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.names(nobody)
	p.pageHas("/readyz", "there is no InferencePool llama in namespace "+l.ns)
	cluster.MustApply(t, l.ns, "docs/epp.md", documented(t))
	p.names("127.0.1.1:8000", "127.0.1.2:8000", "[::1]:8000")
	l.enough()
}

// enough: the role that is documented is what its picker needs. Older API servers are listed and then watched, newer ones watched alone.
func (l *poolLab) enough() {
	l.Helper()
	cluster.Enough(l, l.ns, "llama-picker", "list pods", "list inferencepools.inference.networking.k8s.io")
}

// TestPoolWithoutAPIServer: what is known stays, the leader goes on, and what happens later is heard of.
func TestPoolWithoutAPIServer(t *testing.T) {
	l := newPoolLab(t)
	l.enginePod("a", "127.0.2.1", nil, 8000)
	engine := l.start("engine b", "sim", "-model", "", "-listen", "127.0.2.2:8000")
	l.pod("b", "127.0.2.2", nil)
	p := l.picker("-leader-elect", "-pool-status")
	p.servingIs(true)
	p.names("127.0.2.1:8000", "127.0.2.2:8000")
	cluster.StopAPI(t)
	p.pageHas("/readyz", "the API server does not answer, and what is known stays: pool, since 20", "the lease spokegate-llama cannot be read or written")
	p.pageHas("/metrics", `spokegate_pool_api_up{resource="pool"} 0`, `spokegate_pool_api_up{resource="pods"} 0`)
	p.names("127.0.2.1:8000", "127.0.2.2:8000")
	_ = engine.Process.Kill()
	p.names("127.0.2.1:8000") // engines are looked after all the same
	p.servingIs(true)
	cluster.StartAPI(t)
	l.enginePod("c", "127.0.2.3", nil, 8000)
	p.names("127.0.2.1:8000", "127.0.2.3:8000")
	p.pageHas("/metrics", `spokegate_pool_api_up{resource="pool"} 1`, `spokegate_pool_api_up{resource="pods"} 1`)
	if text := p.page("/readyz"); strings.Contains(text, "does not answer") {
		t.Error(text)
	}
}

// TestPoolLeader: one of two pickers is ready; when it ends another is, and when it is gone without a word, too.
func TestPoolLeader(t *testing.T) {
	l := newPoolLab(t)
	l.enginePod("a", "127.0.3.1", nil, 8000)
	one, two := l.picker("-leader-elect"), l.picker("-leader-elect")
	for _, p := range []*poolPicker{one, two} {
		p.pageHas("/readyz", "workers: known", "leader: ", "pool "+l.ns+"/llama: 1 workers")
		p.names("127.0.3.1:8000") // who asks one that does not lead is answered all the same
	}
	rig.Eventually(t, func() error {
		first, err := one.serving()
		second, err2 := two.serving()
		if err != nil || err2 != nil || first == second {
			return fmt.Errorf("one serves: %v, two: %v; %v, %v", first, second, err, err2)
		}
		if second {
			one, two = two, one
		}
		return nil
	})
	two.pageHas("/readyz", "leader: not this picker")
	_ = one.Process.Signal(syscall.SIGTERM)
	two.servingIs(true)
	lease, err := cluster.Client.CoordinationV1().Leases(l.ns).Get(t.Context(), "spokegate-llama", metav1.GetOptions{})
	if err != nil || *lease.Spec.LeaseTransitions < 1 || *lease.Spec.LeaseDurationSeconds != 15 {
		t.Errorf("%+v, %v", lease.Spec, err)
	}
	_ = two.Process.Kill()
	three := l.picker("-leader-elect")
	three.servingIs(true)
}

// TestPoolInPods runs what docs/epp.md shows as pods, with simulators for engines: pickers find the API server as pods do, and of
// two only the leader is ready.
func TestPoolInPods(t *testing.T) {
	ns := cluster.Namespace(t, "pods")
	node.Tell(t, ns)
	text := string(documented(t))
	for documented, ours := range map[string]string{
		"image: vllm/vllm-openai":                           "image: spokegate\n        securityContext: {runAsNonRoot: true, runAsUser: 65532, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}",
		"args: [--model, meta-llama/Llama-3.1-8B-Instruct]": "args: [sim, -listen, ':8000']",
		"spokegate.io/engine: vllm":                         "spokegate.io/engine: sim",
	} {
		if strings.Count(text, documented) != 1 {
			t.Fatalf("docs/epp.md has %s %d times", documented, strings.Count(text, documented))
		}
		text = strings.Replace(text, documented, ours, 1)
	}
	cluster.MustApply(t, ns, "docs/epp.md", []byte(text))
	node.CreatePods(t, ns)
	engines := node.AwaitReady(t, ns, "app=llama", 2)
	var want []string
	for _, e := range engines {
		want = append(want, e.Status.PodIP+":8000")
	}
	slices.Sort(want)
	var leader corev1.Pod
	rig.Eventually(t, func() error {
		pods, err := cluster.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=llama-picker"})
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range pods.Items {
			if rig.Ready(&p) {
				leader = p
				ready++
			}
		}
		if len(pods.Items) != 2 || ready != 1 {
			return fmt.Errorf("%d pickers, %d of them ready", len(pods.Items), ready)
		}
		return nil
	})
	conn, err := grpc.NewClient(leader.Status.PodIP+":9002", grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p := &poolPicker{poolLab: &poolLab{T: t, ns: ns}, ops: leader.Status.PodIP + ":10002", asks: extprocv3.NewExternalProcessorClient(conn)}
	p.names(want...)
	p.conditionsAre("Accepted=True/Accepted@true ResolvedRefs=True/ResolvedRefs@true spokegate.io/Picking=True/WorkersReady@true", 1)
	p.enough()
}

// TestPoolIsForbidden: what the account may not do is said.
func TestPoolIsForbidden(t *testing.T) {
	l := newPoolLab(t)
	if err := cluster.Client.RbacV1().Roles(l.ns).Delete(t.Context(), "llama-picker", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p := l.picker("-leader-elect")
	p.pageHas("/readyz", "not known yet", "inferencepools.inference.networking.k8s.io", "is forbidden: User", "leases.coordination.k8s.io")
	if yes, err := p.serving(); yes || err != nil {
		t.Fatal(yes, err)
	}
	cluster.MustApply(t, l.ns, "docs/epp.md", documented(t))
	p.servingIs(true)
}

// TestPoolsAreValidated: the CRD takes no pool that no picker could follow.
func TestPoolsAreValidated(t *testing.T) {
	ns := cluster.Namespace(t, "crd")
	const good = `{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: a}, spec: {selector: {matchLabels: {a: b}}, targetPorts: [{number: 1}], endpointPickerRef: {name: p, port: {number: 9002}}}}`
	o := cluster.MustApply(t, ns, "good", []byte(good))[0]
	if text, _ := json.Marshal(o.Object["spec"]); string(text) != `{"appProtocol":"http","endpointPickerRef":{"failureMode":"FailClose","group":"","kind":"Service","name":"p","port":{"number":9002}},"selector":{"matchLabels":{"a":"b"}},"targetPorts":[{"number":1}]}` {
		t.Errorf("%s", text)
	}
	for change, want := range map[string]string{
		"targetPorts: [{number: 1}]/targetPorts: []":                                             "should have at least 1 items",
		"targetPorts: [{number: 1}]/targetPorts: [{number: 1}, {number: 1}]":                     "port number must be unique",
		"targetPorts: [{number: 1}]/targetPorts: [{number: 65536}]":                              "less than or equal to 65535",
		"matchLabels: {a: b}/matchLabels: {}":                                                    "spec.selector.matchLabels",
		"{name: p, port: {number: 9002}}/{name: p}":                                              "port is required when kind is 'Service'",
		"{name: p, port: {number: 9002}}/{name: p, port: {number: 9002}, failureMode: FailHard}": `Unsupported value: "FailHard"`,
		"{name: p, port: {number: 9002}}/{name: p, kind: Other}":                                 "",
		", endpointPickerRef: {name: p, port: {number: 9002}}/":                                  "",
		"targetPorts: [{number: 1}]/targetPorts: [{number: 1}], appProtocol: kubernetes.io~h2c":  "",
	} {
		from, to, _ := strings.Cut(change, "/")
		text := strings.Replace(strings.Replace(good, from, strings.ReplaceAll(to, "~", "/"), 1), "name: a", "name: b", 1)
		_, err := cluster.Apply(t.Context(), ns, "pool", []byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
}
