//go:build kube

package deploy

import (
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestLedger: its pod has the least of everything and flags that are there, it is reached by whom its policy names, also beside a spoke
// whose policies close all of its own pods, and reaches Kafka alone.
func TestLedger(t *testing.T) {
	text, err := os.ReadFile("ledger.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o := read(t, "ledger", text)
	if len(o.workloads) != 1 || len(o.services) != 1 || len(o.policies) != 1 {
		t.Fatalf("%d workloads, %d services, %d policies", len(o.workloads), len(o.services), len(o.policies))
	}
	w := o.workloads[0]
	noPrivileges(t, "the ledger", w)
	flagsAreThere(t, "the ledger", toldFlags(t), w.container(t, "ledger").Args)
	for k, v := range o.services[0].Spec.Selector {
		if w.selector.MatchLabels[k] != v || w.pod.Labels[k] != v {
			t.Errorf("the service wants %s: %s, the pods have %q", k, v, w.pod.Labels[k])
		}
	}
	for _, spoke := range shapes(t) {
		if spoke.shape == "spoke-hub-mtls" {
			o.policies = append(o.policies, spoke.policies...)
			o.workloads = append(o.workloads, spoke.workloads...)
		}
	}
	n := o.network(t, "")
	pods := o.pods()
	ledger := pods[0]
	for _, from := range append(strangers(o.namespace), pods...) {
		for _, port := range append([]int32{9600}, ourPorts...) {
			if got, want := n.reaches(from, ledger, port, corev1.ProtocolTCP), from.namespace == "monitoring" && port == 9600; got != want {
				t.Errorf("%s → ledger:%d reached %v, want %v", from.name, port, got, want)
			}
		}
	}
	for name, to := range callees(o.namespace) {
		for _, port := range []int32{53, 443, 5432, 6379, 8090, 9092, 9093, 9701} {
			want := name == "dns" && port == 53 || name == "kafka" && port == 9093
			if got := n.reaches(ledger, to, port, corev1.ProtocolTCP); got != want {
				t.Errorf("ledger → %s:%d reached %v, want %v", name, port, got, want)
			}
		}
	}
	for _, pod := range pods {
		if slices.ContainsFunc(ourPorts, func(port int32) bool { return n.reaches(ledger, pod, port, corev1.ProtocolTCP) }) {
			t.Errorf("ledger → %s", pod.name)
		}
	}
}
