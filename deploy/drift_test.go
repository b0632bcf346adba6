//go:build kube

package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	hubdeploy "github.com/spokegate/spokegate/hub/deploy"
)

// TestHubMakesTheSamePod: what the hub renders for an endpoint is the chart's worker, but for what only one of them has: an account
// of the chart's, ways out to Kafka and traces, and the labels by which each finds its own again.
func TestHubMakesTheSamePod(t *testing.T) {
	templates, err := hubdeploy.Load("")
	if err != nil {
		t.Fatal(err)
	}
	site := hubdeploy.Site{Namespace: "spokegate", Image: "ghcr.io/spokegate/spokegate:0.1.0", Doors: []string{"dns:spokegate-doors.spokegate.svc:8090"},
		ModelsClaim: "models", FleetIssuer: "spokegate-fleet", DoorName: "spokegate-doors.spokegate.svc"}
	text, err := templates.Render("north", site, []hubdeploy.Item{{Endpoint: "large", Models: []string{"org/large"}, Deployment: hubdeploy.Deployment{
		Stack: "plain", Model: "/models/large", Image: "registry.example.com/vllm:0.32", GPU: "NVIDIA-H100-80GB-HBM3", GPUs: 2, EngineArgs: []string{"--tensor-parallel-size=2"}}}})
	if err != nil {
		t.Fatal(err)
	}
	hubs := only(t, read(t, "spoke-of-the-hub", text), "large")
	var charts workload
	for _, o := range shapes(t) {
		if o.shape == "spoke-hub-mtls" {
			charts = only(t, o, "spokegate-large")
		}
	}
	for _, w := range []*workload{&hubs, &charts} {
		common(w)
	}
	if d := cmp.Diff(charts.pod.Spec, hubs.pod.Spec, quantities); d != "" {
		t.Errorf("the chart's (-) and the hub's (+) differ:\n%s", d)
	}
	for _, l := range []string{"app.kubernetes.io/name", "app.kubernetes.io/component", "spokegate.io/spoke", "spokegate.io/endpoint"} {
		if charts.pod.Labels[l] == "" || charts.pod.Labels[l] != hubs.pod.Labels[l] { // policies and pools select by them
			t.Errorf("label %s: %q and %q", l, charts.pod.Labels[l], hubs.pod.Labels[l])
		}
	}
	if d := cmp.Diff(charts.pod.Annotations, hubs.pod.Annotations); d != "" {
		t.Errorf("annotations: %s", d)
	}
}

func only(t *testing.T, o objects, name string) workload {
	t.Helper()
	for _, w := range o.workloads {
		if w.name == name {
			return w
		}
	}
	t.Fatalf("%s has no %s", o.shape, name)
	return workload{}
}

// common takes off what is rightly not the same.
func common(w *workload) {
	s := &w.pod.Spec
	s.ServiceAccountName = ""
	for i := range s.TopologySpreadConstraints {
		s.TopologySpreadConstraints[i].LabelSelector = nil
	}
	kafka := func(name string) bool { return strings.HasPrefix(name, "kafka") }
	s.Volumes = slices.DeleteFunc(s.Volumes, func(v corev1.Volume) bool { return kafka(v.Name) })
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			c := &list[i]
			c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "-kafka") || strings.HasPrefix(a, "-otlp") })
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return kafka(m.Name) })
			if c.Name == "engine" { // the operator's figures
				delete(c.Resources.Requests, corev1.ResourceCPU)
				delete(c.Resources.Requests, corev1.ResourceMemory)
				delete(c.Resources.Limits, corev1.ResourceMemory)
			}
		}
	}
}
