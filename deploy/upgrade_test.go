//go:build kube

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
)

var quantities = cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })

// TestUpgradesStartNothingAnew for which nothing has changed but the chart's version: an engine loads its model for minutes, and
// Kubernetes refuses another claim of a StatefulSet.
func TestUpgradesStartNothingAnew(t *testing.T) {
	newer := t.TempDir()
	if out, err := exec.Command("cp", "-r", "helm/spokegate-spoke", "helm/spokegate-hub", newer).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	for _, chart := range []string{"spokegate-spoke", "spokegate-hub"} {
		file := filepath.Join(newer, chart, "Chart.yaml")
		text, err := os.ReadFile(file)
		if err == nil {
			text = regexp.MustCompile(`(?m)^(version|appVersion): .*$`).ReplaceAll(text, []byte(`$1: "9.8.7"`))
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("shapes/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		chart, set := "spokegate-spoke", "image.tag=one,envoyImage.tag=one"
		if strings.HasPrefix(f, "shapes/hub-") {
			chart, set = "spokegate-hub", "image.tag=one"
		}
		before, err := helm(t, chart, "--values", f, "--set", set)
		if err != nil {
			t.Fatal(before)
		}
		after, err := helm(t, filepath.Join(newer, chart), "--values", f, "--set", set)
		if err != nil || !strings.Contains(after, `app.kubernetes.io/version: "9.8.7"`) {
			t.Fatalf("%v: %.300s", err, after)
		}
		olds, news := read(t, filepath.Base(f), []byte(before)).workloads, read(t, filepath.Base(f), []byte(after)).workloads
		for i := range olds {
			if d := cmp.Diff(olds[i], news[i], cmp.AllowUnexported(workload{}), quantities); d != "" {
				t.Errorf("%s %s is started anew:\n%s", f, olds[i].name, d)
			}
		}
	}
}
