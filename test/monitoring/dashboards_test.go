package monitoring

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const deployed = "../../deploy/monitoring/"

// dashboard is what a dashboard of ours may consist of; other members of panels are Grafana's own business.
type dashboard struct {
	UID           string   `json:"uid"`
	Title         string   `json:"title"`
	Description   string   `json:"description"`
	Tags          []string `json:"tags"`
	SchemaVersion int      `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name, Type, AllValue string
		} `json:"list"`
	} `json:"templating"`
	Links []struct {
		Type        string   `json:"type"`
		Tags        []string `json:"tags"`
		IncludeVars bool     `json:"includeVars"`
	} `json:"links"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  source `json:"datasource"`
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []target `json:"targets"`
}

type source struct{ Type, UID string }

type target struct {
	RefID        string `json:"refId"`
	Datasource   source `json:"datasource"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

// dashboards reads them, by their files' names.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(deployed + "dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	all := map[string]dashboard{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.NewDecoder(bytes.NewReader(data)).Decode(&d); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all[strings.TrimSuffix(filepath.Base(f), ".json")] = d
	}
	return all
}

// TestDashboards: each can be imported as it is, finds its data by variables, and tells of each panel what a bad value looks like.
func TestDashboards(t *testing.T) {
	all := dashboards(t)
	for _, name := range []string{"door", "limits", "usage", "picking", "workers", "revisions"} {
		if _, ok := all[name]; !ok {
			t.Errorf("there is no dashboard %s", name)
		}
	}
	for name, d := range all {
		if d.UID != "spokegate-"+name || !strings.HasPrefix(d.Title, "Spokegate: ") || d.Description == "" || d.SchemaVersion < 39 {
			t.Errorf("%s: uid %q, title %q, description %q, schema %d", name, d.UID, d.Title, d.Description, d.SchemaVersion)
		}
		if len(d.Tags) != 1 || d.Tags[0] != "spokegate" || len(d.Links) != 1 || d.Links[0].Type != "dashboards" || !d.Links[0].IncludeVars || d.Links[0].Tags[0] != "spokegate" {
			t.Errorf("%s: tags %v, links %+v: each dashboard leads to all others", name, d.Tags, d.Links)
		}
		variables := map[string]string{}
		for _, v := range d.Templating.List {
			if variables[v.Name] = v.Type; v.Type == "query" && v.AllValue != ".*" {
				t.Errorf("%s: all of $%s is %q: series without the label are lost", name, v.Name, v.AllValue)
			}
		}
		if variables["datasource"] != "datasource" || variables["spoke"] != "query" || variables["door"] != "query" {
			t.Errorf("%s: variables are %v", name, variables)
		}
		checkPanels(t, name, d.Panels, variables)
	}
}

// inGrafana are variables that Grafana sets by itself.
var inGrafana = map[string]bool{"__rate_interval": true}

var variable = regexp.MustCompile(`\$\{?(\w+)`)

func checkPanels(t *testing.T, name string, panels []panel, variables map[string]string) {
	t.Helper()
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range panels {
		at := name + ": " + p.Title
		if p.ID == 0 || ids[p.ID] || p.Title == "" || p.FieldConfig.Defaults.Unit == "" || !strings.Contains(p.Description, "Bad: ") {
			t.Errorf("%s: id %d, unit %q, description %q: want an id of its own, a unit, and what is bad", at, p.ID, p.FieldConfig.Defaults.Unit, p.Description)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W <= 0 || g.H <= 0 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s stands at %+v", at, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies over %s", at, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if refs[q.RefID] || q.Expr == "" || q.LegendFormat == "" || q.Datasource.UID != "${datasource}" || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s: %+v", at, q)
			}
			refs[q.RefID] = true
			for _, m := range variable.FindAllStringSubmatch(q.Expr, -1) {
				if variables[m[1]] == "" && !inGrafana[m[1]] {
					t.Errorf("%s asks for $%s, which is no variable", at, m[1])
				}
			}
		}
		if len(refs) == 0 {
			t.Errorf("%s asks nothing", at)
		}
	}
}
