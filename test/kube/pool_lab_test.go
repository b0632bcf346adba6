//go:build kube

package kube

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokegate/spokegate/test/kube/rig"
)

// poolLab is a pool in a namespace, pods that are no more than objects, with engines at their addresses, and pickers as processes
// that have the token of the account in docs/epp.md.
type poolLab struct {
	*testing.T
	ns         string
	kubeconfig string
	binary     string
}

// process is one that ends with the test.
type process struct {
	*exec.Cmd
	ended chan struct{}
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (l *poolLab) start(name string, args ...string) *process {
	l.Helper()
	out := &buffer{}
	p := &process{exec.Command(l.binary, args...), make(chan struct{})}
	p.Stdout, p.Stderr = out, out
	if err := p.Start(); err != nil {
		l.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.ended) }()
	l.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		if l.Failed() {
			text := out.String()
			l.Logf("--- end of the output of %s\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	return p
}

// newPoolLab applies what docs/epp.md shows, and makes a kubeconfig with a file that has the account's token.
func newPoolLab(t *testing.T) *poolLab {
	ns := cluster.Namespace(t, "pool")
	cluster.MustApply(t, ns, "docs/epp.md", documented(t))
	l := &poolLab{T: t, ns: ns, binary: cmp.Or(os.Getenv("SPOKEGATE_BINARY"), cluster.Path("bin/spokegate"))}
	folder := cluster.Folder(t, ns, "llama-picker")
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: rig, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: picker, user: {tokenFile: %q}}]
contexts: [{name: rig, context: {cluster: rig, user: picker, namespace: %s}}]
current-context: rig
`, cluster.Admin.Host, filepath.Join(folder, "ca.crt"), filepath.Join(folder, "token"), ns)
	l.kubeconfig = filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(l.kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// documented is the YAML of docs/epp.md that makes a pool.
func documented(t *testing.T) []byte {
	page, err := os.ReadFile(cluster.Path("docs/epp.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "```yaml\napiVersion: apps/v1\n")
	text, _, closed := strings.Cut(text, "```")
	if !found || !closed {
		t.Fatal("docs/epp.md shows no pool")
	}
	return []byte("apiVersion: apps/v1\n" + text)
}

// enginePod makes a pod that is ready, and an engine at its address.
func (l *poolLab) enginePod(name, ip string, annotations map[string]string, ports ...int) {
	l.Helper()
	for _, port := range ports {
		l.start("engine "+name, "sim", "-model", "", "-listen", net.JoinHostPort(ip, fmt.Sprint(port)))
	}
	l.pod(name, ip, annotations)
}

// pod makes one that is ready. No kubelet knows its node.
func (l *poolLab) pod(name, ip string, annotations map[string]string) {
	l.Helper()
	no, yes := false, true
	user := int64(1000)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "llama"}, Annotations: annotations}, Spec: corev1.PodSpec{
		NodeName: "elsewhere",
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "engine", Image: "engine", Ports: []corev1.ContainerPort{{ContainerPort: 8000}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}},
	}}
	if _, err := cluster.Client.CoreV1().Pods(l.ns).Create(l.Context(), p, metav1.CreateOptions{}); err != nil {
		l.Fatal(err)
	}
	l.status(name, ip, true)
}

// status writes what a kubelet would.
func (l *poolLab) status(name, ip string, ready bool) {
	l.Helper()
	is := corev1.ConditionFalse
	if ready {
		is = corev1.ConditionTrue
	}
	text, _ := json.Marshal(map[string]any{"status": corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}}})
	if _, err := cluster.Client.CoreV1().Pods(l.ns).Patch(l.Context(), name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status"); err != nil {
		l.Fatal(err)
	}
}

// remove deletes a pod: with a grace period it goes when its kubelet says so, else at once.
func (l *poolLab) remove(name string, grace int64) {
	l.Helper()
	if err := cluster.Client.CoreV1().Pods(l.ns).Delete(l.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		l.Fatal(err)
	}
}

var pools = schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"}

// patch changes the pool, or one of its subresources.
func (l *poolLab) patch(text string, sub ...string) {
	l.Helper()
	if _, err := cluster.Dynamic.Resource(pools).Namespace(l.ns).Patch(l.Context(), "llama", types.MergePatchType, []byte(text), metav1.PatchOptions{}, sub...); err != nil {
		l.Fatal(err)
	}
}

// conditions are those of the picker's entry in the pool's status, and how many entries there are.
func (l *poolLab) conditions() (text string, entries int) {
	o, err := cluster.Dynamic.Resource(pools).Namespace(l.ns).Get(l.Context(), "llama", metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	raw, _ := json.Marshal(o.Object["status"])
	var st struct {
		Parents []struct {
			ParentRef  struct{ Kind, Name string }
			Conditions []metav1.Condition
		}
	}
	if err := json.Unmarshal(raw, &st); err != nil {
		l.Fatal(err)
	}
	for _, p := range st.Parents {
		if p.ParentRef.Kind != "Service" || p.ParentRef.Name != "llama-picker" {
			continue
		}
		for _, c := range p.Conditions {
			text += fmt.Sprintf("%s=%s/%s@%v ", c.Type, c.Status, c.Reason, c.ObservedGeneration == o.GetGeneration())
		}
	}
	return strings.TrimSpace(text), len(st.Parents)
}

func (l *poolLab) conditionsAre(want string, entries int) {
	l.Helper()
	rig.Eventually(l, func() error {
		if got, n := l.conditions(); got != want || n != entries {
			return fmt.Errorf("%s, %d entries; want %s, %d", got, n, want, entries)
		}
		return nil
	})
}
