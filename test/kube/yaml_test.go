//go:build kube

package kube

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokegate/spokegate/hub/deploy"
	"github.com/spokegate/spokegate/test/kube/rig"
)

// TestShapes: what the charts make of each shape is what the API server takes, strictly, and so are its pods.
func TestShapes(t *testing.T) {
	shapes, err := filepath.Glob(cluster.Path("deploy/shapes/*.yaml"))
	if err != nil || len(shapes) < 5 {
		t.Fatal(shapes, err)
	}
	for _, values := range shapes {
		shape := strings.TrimSuffix(filepath.Base(values), ".yaml")
		t.Run(shape, func(t *testing.T) {
			ns := cluster.Namespace(t, shape)
			chart, release := "spokegate-spoke", "spokegate"
			if strings.HasPrefix(shape, "hub-") {
				chart, release = "spokegate-hub", "spokegate-hub"
			}
			cluster.MustApply(t, ns, shape, cluster.Render(t, chart, release, ns, values))
			node.TryPods(t, ns)
		})
	}
}

// TestFiles: what is shipped as YAML is what the API server takes.
func TestFiles(t *testing.T) {
	var files []string
	for _, pattern := range []string{"deploy/yaml/*.yaml", "deploy/*.yaml"} {
		found, err := filepath.Glob(cluster.Path(pattern))
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		files = append(files, found...)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(f), func(t *testing.T) { apply(t, f, text) })
	}
}

var fence = regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```")

// TestDocs: each object of Kubernetes that the docs show is what the API server takes.
func TestDocs(t *testing.T) {
	for _, page := range []string{"docs/epp.md", "docs/gateways.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			text, err := os.ReadFile(cluster.Path(page))
			if err != nil {
				t.Fatal(err)
			}
			shown := 0
			for _, m := range fence.FindAllSubmatch(text, -1) {
				if strings.HasPrefix(string(m[1]), "apiVersion:") || strings.Contains(string(m[1]), "\napiVersion:") {
					apply(t, page, m[1])
					shown++
				}
			}
			if shown == 0 {
				t.Error("it shows none")
			}
		})
	}
}

// TestHubDeployments: what the hub renders for endpoints is what the API server takes. Of Dynamo's own kinds there are no CRDs here.
func TestHubDeployments(t *testing.T) {
	templates, err := deploy.Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, stack := range templates.Stacks() {
		t.Run(stack, func(t *testing.T) {
			ns := cluster.Namespace(t, "hub-"+stack)
			site := deploy.Site{Namespace: ns, Image: "registry.example.com/spokegate:1", Doors: []string{"door-1:8090"}, Gateway: "edge", ModelsClaim: "models"}
			two := 2
			text, err := templates.Render("north", site, []deploy.Item{
				{Endpoint: "Large one", Models: []string{"org/large"}, Deployment: deploy.Deployment{
					Stack: stack, Model: "/models/it's: {a} #1", Image: "registry.example.com/vllm:1", GPU: "H100", GPUs: 8, Replicas: &two,
					EngineArgs: []string{"--tensor-parallel-size=8", "yes", "0x10", `--json={"a":"b"}`, "$(HOME)"}}},
				{Endpoint: "small", Deployment: deploy.Deployment{Stack: stack, Model: "org/small", Image: "registry.example.com/vllm:1"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			apply(t, stack, text)
			if stack != "llm-d" { // whose pods are its own, and may run as root
				node.TryPods(t, ns)
			}
		})
	}
}

// TestEnvoyGatewayObjects: what is printed for Envoy Gateway is what the API server takes, by its own CRDs and their rules.
func TestEnvoyGatewayObjects(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("endpoints: [{name: llama}, {name: other}]\nmodels: [{name: m, endpoint: llama}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, more := range map[string][]string{
		"with TLS, by pods' labels": {"-policy", policy, "-tls-secret", "llm-certificate", "-kafka", "kafka:9092"},
		"by Services":               {"-workers", "llama=llama-workers:9000", "-workers", "other=s:1"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"envoy", "print", "-for", "envoy-gateway", "-namespace", "llm", "-image", "ghcr.io/spokegate/spokegate:1", "-fleet-plain"}, more...)
			print := exec.Command(node.Binary(), args...)
			text, err := print.Output()
			if err != nil {
				t.Fatal(err)
			}
			apply(t, "envoy print", text)
		})
	}
}

// apply applies objects where they say, in namespaces that are made for it.
func apply(t *testing.T, name string, text []byte) {
	t.Helper()
	objects, err := rig.Read(name, text)
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) == 0 {
		t.Fatalf("%s has no object", name)
	}
	spare := cluster.Namespace(t, "spare")
	for _, o := range objects {
		if strings.HasPrefix(o.GetAPIVersion(), "nvidia.com/") {
			continue
		}
		if ns := o.GetNamespace(); ns != "" {
			made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
			if _, err := cluster.Client.CoreV1().Namespaces().Create(t.Context(), made, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
		one, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.Apply(t.Context(), spare, name, one); err != nil {
			t.Error(err)
		}
	}
}
