//go:build kube

package kube

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
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

// poolPicker is a picker as a process.
type poolPicker struct {
	*poolLab
	*process
	ops   string
	probe healthv1.HealthClient
	asks  extprocv3.ExternalProcessorClient
}

func freeAddress(t *testing.T) string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}

func (l *poolLab) picker(args ...string) *poolPicker {
	l.Helper()
	listen, health, ops := freeAddress(l.T), freeAddress(l.T), freeAddress(l.T)
	p := &poolPicker{poolLab: l, ops: ops}
	p.process = l.start("picker", append([]string{"epp", "-pool", "llama", "-kubeconfig", l.kubeconfig, "-listen", listen, "-health-listen", health, "-ops", ops,
		"-drain-delay", "0s"}, args...)...)
	dial := func(address string) *grpc.ClientConn {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			l.Fatal(err)
		}
		l.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	p.probe, p.asks = healthv1.NewHealthClient(dial(health)), extprocv3.NewExternalProcessorClient(dial(listen))
	return p
}

func (p *poolPicker) serving() (bool, error) {
	r, err := p.probe.Check(p.Context(), &healthv1.HealthCheckRequest{Service: "readiness"}, grpc.WaitForReady(false))
	return r.GetStatus() == healthv1.HealthCheckResponse_SERVING, err
}

func (p *poolPicker) servingIs(want bool) {
	p.Helper()
	rig.Eventually(p.T, func() error {
		if got, err := p.serving(); err != nil || got != want {
			return fmt.Errorf("serving: %v, %v; %s", got, err, p.page("/readyz"))
		}
		return nil
	})
}

// page is what operators get.
func (p *poolPicker) page(path string) string {
	r, err := http.Get("http://" + p.ops + path)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	return string(text)
}

func (p *poolPicker) pageHas(path string, want ...string) {
	p.Helper()
	rig.Eventually(p.T, func() error {
		text := p.page(path)
		for _, w := range want {
			if !strings.Contains(text, w) {
				return fmt.Errorf("%s has no %q:\n%s", path, w, text)
			}
		}
		return nil
	})
}

// named asks as a gateway does, with headers alone, and gives all who are named; the status where nobody is.
func (p *poolPicker) named() string {
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	stream, err := p.asks.Process(ctx)
	if err != nil {
		return err.Error()
	}
	headers := &corev3.HeaderMap{}
	for k, v := range map[string]string{":method": "GET", ":path": "/v1/models", ":authority": "llama"} {
		headers.Headers = append(headers.Headers, &corev3.HeaderValue{Key: k, RawValue: []byte(v)})
	}
	err = stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headers, EndOfStream: true}}})
	if err != nil {
		return err.Error()
	}
	r, err := stream.Recv()
	if err != nil {
		return err.Error()
	}
	if now := r.GetImmediateResponse(); now != nil {
		return now.GetStatus().GetCode().String()
	}
	for _, h := range r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
			all := strings.Split(cmp.Or(string(h.GetHeader().GetRawValue()), h.GetHeader().GetValue()), ",")
			slices.Sort(all)
			return strings.Join(all, " ")
		}
	}
	return "an answer without a name"
}

// names waits until exactly these are named.
func (p *poolPicker) names(want ...string) {
	p.Helper()
	rig.Eventually(p.T, func() error {
		if got := p.named(); got != strings.Join(want, " ") {
			return fmt.Errorf("%s, want %s\n%s", got, want, p.page("/readyz"))
		}
		return nil
	})
}

const nobody = "ServiceUnavailable"

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
