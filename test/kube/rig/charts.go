package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// kubeVersion is the API server's: see test/setup/apiserver/go.mod. One that is built from its module does not know it itself.
const kubeVersion = "1.37.2"

// Render gives what Helm makes of a chart in deploy/helm with values, each a file or a YAML text.
func (c *Cluster) Render(t testing.TB, chart, release, namespace string, values ...string) []byte {
	t.Helper()
	helm := filepath.Join(c.root, ".tools", "bin", "helm")
	args := []string{"template", release, filepath.Join(c.root, "deploy", "helm", chart), "--namespace", namespace, "--kube-version", kubeVersion}
	for i, v := range values {
		if _, err := os.Stat(v); err != nil {
			file := filepath.Join(t.TempDir(), fmt.Sprintf("values-%d.yaml", i))
			if err := os.WriteFile(file, []byte(v), 0o600); err != nil {
				t.Fatal(err)
			}
			v = file
		}
		args = append(args, "--values", v)
	}
	out, err := exec.Command(helm, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("helm template %s: %v\n%s", chart, err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return out
}

// Path is a file of the repository.
func (c *Cluster) Path(name string) string { return filepath.Join(c.root, name) }
