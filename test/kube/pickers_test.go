//go:build kube

package kube

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokegate/spokegate/test/kube/rig"
)

const pickers = "app.kubernetes.io/component=picker"

// TestPickers runs the chart's pickers as pods, two of which one leads, for an engine's pod that is somebody else's. They follow the
// pool, the second takes over when the first is deleted, and their role is enough and no more.
func TestPickers(t *testing.T) {
	ns := cluster.Namespace(t, "pickers")
	node.Tell(t, ns)
	cluster.MustApply(t, ns, "spoke-pickers", cluster.Render(t, "spokegate-spoke", "spokegate", ns, cluster.Path("deploy/shapes/spoke-pickers.yaml")))
	cluster.MustApply(t, ns, "engine", []byte(`
apiVersion: v1
kind: Pod
metadata: {name: engine, labels: {app: vllm-llama}}
spec:
  nodeName: node
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: engine
      image: ghcr.io/spokegate/spokegate:1
      args: [sim, "-model=", "-listen=:8000"]
      readinessProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 1}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`))
	node.CreatePods(t, ns)
	node.AwaitReady(t, ns, "app=vllm-llama", 1)
	first := leader(t, ns, "")
	picking(t, ns)
	node.DeletePod(t, ns, first.Name)
	node.CreatePods(t, ns)
	second := leader(t, ns, first.Name)
	picking(t, ns)
	// list: API servers before 1.32 are listed and then watched, newer ones watched alone.
	cluster.Enough(t, ns, second.Spec.ServiceAccountName, "list pods", "list inferencepools.inference.networking.k8s.io")
}

// leader waits until one of two pickers is ready, and it is not the one that was.
func leader(t *testing.T, ns, was string) (leader corev1.Pod) {
	t.Helper()
	rig.Eventually(t, func() error {
		pods, err := cluster.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: pickers})
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range pods.Items {
			if rig.Ready(&p) {
				ready, leader = ready+1, p
			}
		}
		if len(pods.Items) != 2 || ready != 1 || leader.Name == was {
			return fmt.Errorf("of %d pickers %d are ready, %s", len(pods.Items), ready, leader.Name)
		}
		return nil
	})
	return leader
}

// picking waits until the pool's status says that its picker has workers.
func picking(t *testing.T, ns string) {
	t.Helper()
	rig.Eventually(t, func() error {
		pool, err := cluster.Dynamic.Resource(pools).Namespace(ns).Get(t.Context(), "spokegate-llama", metav1.GetOptions{})
		if err != nil {
			return err
		}
		parents, _, _ := unstructured.NestedSlice(pool.Object, "status", "parents")
		if text := fmt.Sprint(parents...); !strings.Contains(text, "WorkersReady") {
			return fmt.Errorf("the pool's status is %s", text)
		}
		return nil
	})
}
