//go:build kube

package deploy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
)

// TestPodsHaveNoPrivileges: the least of everything, in each container of each shape.
func TestPodsHaveNoPrivileges(t *testing.T) {
	for _, o := range shapes(t) {
		for _, w := range o.workloads {
			noPrivileges(t, o.shape+" "+w.name, w)
		}
	}
}

func noPrivileges(t *testing.T, whose string, w workload) {
	t.Helper()
	s := w.pod.Spec
	if c := s.SecurityContext; c == nil || !is(c.RunAsNonRoot) || c.RunAsUser == nil || *c.RunAsUser != 65532 || c.SeccompProfile == nil || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: the pod's security context is %+v", whose, c)
	}
	if picker := w.component() == "picker"; s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken != picker {
		t.Errorf("%s: a service account's token is mounted: %v, want %v", whose, s.AutomountServiceAccountToken, picker)
	}
	if s.HostNetwork || s.HostPID || s.HostIPC || s.ServiceAccountName == "" {
		t.Errorf("%s: a part of the node, or no account of its own", whose)
	}
	for _, v := range s.Volumes {
		if v.HostPath != nil {
			t.Errorf("%s: the volume %s is the node's", whose, v.Name)
		}
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit == nil {
			t.Errorf("%s: the volume %s has no bound", whose, v.Name)
		}
	}
	for _, c := range w.containers() {
		unprivileged(t, whose+" "+c.Name, c)
	}
}

func is(b *bool) bool { return b != nil && *b }

func unprivileged(t *testing.T, name string, c corev1.Container) {
	t.Helper()
	s := c.SecurityContext
	switch {
	case s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
		t.Errorf("%s may become more than it is", name)
	case !is(s.ReadOnlyRootFilesystem):
		t.Errorf("%s may write to its image", name)
	case s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0:
		t.Errorf("%s has capabilities", name)
	case is(s.Privileged):
		t.Errorf("%s is privileged", name)
	}
	if _, asked := c.Resources.Requests[corev1.ResourceMemory]; !asked {
		t.Errorf("%s asks for no memory", name)
	}
	for _, p := range c.Ports {
		if p.HostPort != 0 {
			t.Errorf("%s has the node's port %d", name, p.HostPort)
		}
	}
}

// TestPodsEndInTheirOwnTime: the grace is longer than all that is waited for, and who is needed by the others ends last.
func TestPodsEndInTheirOwnTime(t *testing.T) {
	for _, o := range shapes(t) {
		for _, w := range o.workloads {
			if w.component() == "hub" || w.kind == "CronJob" { // nobody waits for their answers for long
				continue
			}
			var drains time.Duration
			main := w.pod.Spec.Containers[0]
			for _, a := range main.Args {
				if m := regexp.MustCompile(`^-drain(-delay)?=(.*)$`).FindStringSubmatch(a); m != nil {
					d, err := time.ParseDuration(m[2])
					if err != nil {
						t.Fatal(err)
					}
					drains += d
				}
			}
			grace := time.Duration(*w.pod.Spec.TerminationGracePeriodSeconds) * time.Second
			if drains == 0 || grace < drains+15*time.Second || grace > drains+2*time.Minute {
				t.Errorf("%s %s: drains for %v, and is killed after %v", o.shape, w.name, drains, grace)
			}
			for _, c := range w.pod.Spec.InitContainers { // a native sidecar is ended after what it serves
				if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
					t.Errorf("%s %s: %s is no sidecar", o.shape, w.name, c.Name)
				}
			}
		}
	}
}

// TestProbesMeanWhatTheySay: liveness is the process alone, readiness is what can be served.
func TestProbesMeanWhatTheySay(t *testing.T) {
	ready := map[string]string{"door": "/readyz/any", "shim": "/readyz", "picker": "/readyz", "hub": "/readyz"}
	for _, o := range shapes(t) {
		for _, w := range o.workloads {
			for _, c := range w.containers() {
				page, ours := ready[c.Name]
				switch {
				case w.kind == "CronJob": // its end is what counts
					if c.LivenessProbe != nil || c.ReadinessProbe != nil || len(c.Ports) > 0 {
						t.Errorf("%s %s: a probe or a port of a job", o.shape, w.name)
					}
				case !ours && c.Name == "envoy":
					if c.LivenessProbe != nil || c.ReadinessProbe == nil {
						t.Errorf("%s %s: Envoy listens only when it has a policy: a liveness probe would kill it before", o.shape, w.name)
					}
				case !ours: // an engine, by a command: it has no port
					if c.ReadinessProbe != nil || c.LivenessProbe != nil && c.LivenessProbe.Exec == nil || len(c.Ports) > 0 {
						t.Errorf("%s %s %s: a port of the engine", o.shape, w.name, c.Name)
					}
				case c.LivenessProbe.HTTPGet.Path != "/healthz" || c.StartupProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != page:
					t.Errorf("%s %s %s: %+v", o.shape, w.name, c.Name, c.LivenessProbe.HTTPGet)
				}
			}
		}
	}
}

// TestNoSideDoor: engines listen on the pod's loopback, Envoy's admin page too, and no Service leads to either.
func TestNoSideDoor(t *testing.T) {
	for _, o := range shapes(t) {
		for _, w := range o.workloads {
			switch w.component() {
			case "worker":
				engine := strings.Join(w.container(t, "engine").Args, " ")
				if !strings.Contains(engine, "--host=127.0.0.1") && !strings.Contains(engine, "-listen=127.0.0.1:") || strings.Contains(engine, "tcp://") {
					t.Errorf("%s %s: the engine listens beyond loopback: %s", o.shape, w.name, engine)
				}
			case "door":
				if c := w.container(t, "envoy"); !slices.Contains(c.Args, "-admin=127.0.0.1:9901") {
					t.Errorf("%s %s: Envoy's admin page: %q", o.shape, w.name, c.Args)
				}
			}
		}
		for _, s := range o.services {
			for _, p := range s.Spec.Ports {
				if !slices.Contains([]string{"clients", "8090", "picker", "api", "push"}, p.TargetPort.String()) { // 8090: workers join
					t.Errorf("%s: the service %s leads to %s", o.shape, s.Name, p.TargetPort.String())
				}
			}
		}
	}
}

// TestSelectorsSelect: each of them its own pods and nobody else's, and each workload has a budget.
func TestSelectorsSelect(t *testing.T) {
	for _, o := range shapes(t) {
		for _, w := range o.workloads {
			if w.selector == nil {
				continue // a job's pods are their controller's, and a budget would keep nodes from being emptied
			}
			own, budgets := labels.Set(w.selector.MatchLabels), 0
			for _, other := range o.workloads {
				if labels.SelectorFromSet(own).Matches(labels.Set(other.pod.Labels)) != (other.name == w.name) {
					t.Errorf("%s: %s selects pods of %s", o.shape, w.name, other.name)
				}
			}
			for _, b := range o.budgets {
				if maps.Equal(b.Spec.Selector.MatchLabels, own) {
					budgets++
				}
			}
			want := 1
			if slices.Contains(w.pod.Spec.Containers[0].Args, "-leader-elect") {
				want = 0 // a budget would keep the one that is ready on its node, while another stands by
			}
			if budgets != want {
				t.Errorf("%s: %s has %d budgets, want %d", o.shape, w.name, budgets, want)
			}
		}
		for _, s := range o.services {
			n := 0
			for _, w := range o.workloads {
				if labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(w.pod.Labels)) {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s: the service %s leads to pods of %d workloads", o.shape, s.Name, n)
			}
		}
	}
}

// TestRolesAreLeast: pickers alone have one, and it reads, but for the status of its own pool and its own lease.
func TestRolesAreLeast(t *testing.T) {
	for _, o := range shapes(t) {
		if want := o.shape == "spoke-pickers"; (len(o.roles) > 0) != want {
			t.Errorf("%s: %d roles", o.shape, len(o.roles))
		}
		for _, r := range o.roles {
			for _, rule := range r.Rules {
				for _, what := range rule.Resources {
					for _, verb := range rule.Verbs {
						reads := slices.Contains([]string{"get", "list", "watch"}, verb) && (what == "pods" || what == "inferencepools")
						own := len(rule.ResourceNames) == 1 && (what == "inferencepools/status" || what == "leases")
						if !reads && !own && !(what == "leases" && verb == "create") {
							t.Errorf("%s: %s may %s %s", o.shape, r.Name, verb, what)
						}
					}
				}
			}
		}
	}
}

// TestMemoryIsBounded: all but engines, whose operator knows.
func TestMemoryIsBounded(t *testing.T) {
	for _, o := range shapes(t) {
		for _, w := range o.workloads {
			for _, c := range w.containers() {
				limit := c.Resources.Limits[corev1.ResourceMemory]
				if c.Name != "engine" && limit.Cmp(resource.MustParse("1Gi")) < 0 {
					t.Errorf("%s %s %s: at most %s", o.shape, w.name, c.Name, limit.String())
				}
			}
		}
	}
}
