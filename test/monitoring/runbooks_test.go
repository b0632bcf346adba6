package monitoring

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// rule is one of alerts.yaml.
type rule struct {
	Record      string
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	data, err := os.ReadFile(deployed + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	if err := yaml.UnmarshalWithOptions(data, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// runbook is a section: its text by the name of its alert.
func runbooks(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("../../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, part := range strings.Split(string(data), "\n## ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		if _, twice := sections[name]; twice {
			t.Errorf("two sections are about %s", name)
		}
		sections[name] = text
	}
	return sections
}

// TestRunbooks: each alert leads to a section that tells what it means, how to see it, what to do and what not to do; and no section
// is about an alert that is gone.
func TestRunbooks(t *testing.T) {
	sections, alerts := runbooks(t), map[string]bool{}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts[r.Alert] = true
		if _, ok := sections[r.Alert]; !ok || r.Annotations["runbook_url"] != "docs/runbooks.md#"+strings.ToLower(r.Alert) {
			t.Errorf("%s: it leads to %q, and its section is there: %v", r.Alert, r.Annotations["runbook_url"], ok)
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s says nothing: %v", r.Alert, r.Annotations)
		}
	}
	for name, text := range sections {
		if !alerts[name] {
			t.Errorf("the runbook of %s is about no alert", name)
		}
		for _, part := range []string{"**Users:**", "**See:**", "**Do:**", "**Do not:**"} {
			if !strings.Contains(text, part) {
				t.Errorf("the runbook of %s lacks %s", name, part)
			}
		}
	}
}

// TestEachAlertIsTested: alerts_test.yaml has a case in which it fires, and those in which all is well.
func TestEachAlertIsTested(t *testing.T) {
	data, err := os.ReadFile(deployed + "alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fires := regexp.MustCompile(`alertname: (\w+)\n +exp_alerts:`).FindAllStringSubmatch(string(data), -1)
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		if !slices.ContainsFunc(fires, func(m []string) bool { return m[1] == r.Alert }) {
			t.Errorf("%s fires in no test", r.Alert)
		}
		if !strings.Contains(string(data), "alertname: "+r.Alert+"}") {
			t.Errorf("%s is not quiet in any test", r.Alert)
		}
	}
}
