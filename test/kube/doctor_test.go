//go:build kube

package kube

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokegate/spokegate/doctor"
)

// doctorsPods are two workers and a pool that leads past them. They are objects alone: no kubelet runs them, and the test says how
// they are.
const doctorsPods = `
{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {app.kubernetes.io/name: spokegate, app.kubernetes.io/component: COMPONENT}}, spec: {
  terminationGracePeriodSeconds: GRACE, securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}},
  containers: [{name: main, image: "spokegate:1", args: [ARGS],
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}
`

const doctorsPool = `
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: large}
spec:
  selector: {matchLabels: {app.kubernetes.io/component: worker}}
  targetPorts: [{number: PORT}]
  endpointPickerRef: {name: picker, port: {number: 9002}, failureMode: MODE}
`

const doctorsRest = `
{apiVersion: v1, kind: Service, metadata: {name: picker}, spec: {selector: {app.kubernetes.io/component: picker}, ports: [{port: 9002}]}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: workers}, spec: {maxUnavailable: 1, selector: {matchLabels: {app.kubernetes.io/component: worker}}}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: workers}, spec: {policyTypes: [Ingress],
  podSelector: {matchExpressions: [{key: app.kubernetes.io/component, operator: In, values: [worker]}]}}}
`

// TestDoctor looks at a namespace of the real API server with the account that docs/doctor.md gives it.
func TestDoctor(t *testing.T) {
	ns := cluster.Namespace(t, "doctor")
	data, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	_, role, _ := strings.Cut(string(data), "```yaml\n")
	role, _, _ = strings.Cut(role, "```")
	cluster.MustApply(t, ns, "docs/doctor.md", []byte(role))
	config := cluster.Kubeconfig(t, cluster.As(t, ns, "spokegate-doctor"))
	look := func() []string {
		r := doctor.Examine(t.Context(), doctor.Target{Kube: ns, KubeConfig: config, Patience: time.Minute})
		var ids []string
		for _, f := range r.Findings {
			if f.Severity != doctor.OK {
				ids = append(ids, f.ID)
			}
		}
		slices.Sort(ids)
		return slices.Compact(ids)
	}
	want := func(ids ...string) {
		t.Helper()
		slices.Sort(ids)
		if got := look(); !slices.Equal(got, ids) {
			t.Errorf("found %q, want %q", got, ids)
		}
	}
	want("kube-nothing")

	aPod(t, ns, "worker-1", "worker", 10, `worker, "-attach=http://127.0.0.1:8000", "-listen=0.0.0.0:9000", "-drain=30s"`, true)
	aPod(t, ns, "worker-2", "worker", 60, `worker, "-attach=http://127.0.0.1:8000", "-listen=0.0.0.0:9000", "-drain=30s"`, false)
	pool := func(port, mode string) {
		cluster.MustApply(t, ns, "pool", []byte(strings.NewReplacer("PORT", port, "MODE", mode).Replace(doctorsPool)))
	}
	pool("8000", "FailOpen")
	want("kube-pod", "kube-grace", "kube-no-budget", "kube-no-network-policy", "kube-pool-port", "kube-fails-open", "kube-no-picker")

	pool("9000", "FailClose")
	cluster.MustApply(t, ns, "rest", []byte(doctorsRest))
	aPod(t, ns, "picker-1", "picker", 60, `epp, "-drain=30s"`, true)
	zero := int64(0)
	if err := cluster.Client.CoreV1().Pods(ns).Delete(t.Context(), "worker-1", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	ready(t, ns, "worker-2")
	want()

	nobody := cluster.Kubeconfig(t, cluster.As(t, ns, "nobody"))
	r := doctor.Examine(t.Context(), doctor.Target{Kube: ns, KubeConfig: nobody, Patience: time.Minute})
	if r.Verdict != doctor.CannotTell || r.Status() != 1 || !r.Has("kube-unreachable") {
		t.Errorf("of an account that may nothing: %+v", r)
	}
	for _, c := range cluster.Calls(t, ns, "spokegate-doctor") {
		if c.Verb != "list" {
			t.Errorf("it does more than to list: %+v", c)
		}
	}
}

func aPod(t *testing.T, ns, name, component string, grace int, args string, isReady bool) {
	t.Helper()
	text := strings.NewReplacer("NAME", name, "COMPONENT", component, "GRACE", fmt.Sprint(grace), "ARGS", args).Replace(doctorsPods)
	cluster.MustApply(t, ns, name, []byte(text))
	if isReady {
		ready(t, ns, name)
	}
}

// ready says of a pod what its kubelet would.
func ready(t *testing.T, ns, name string) {
	t.Helper()
	pods := cluster.Client.CoreV1().Pods(ns)
	p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
