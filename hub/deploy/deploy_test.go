package deploy

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func number(n int) *int { return &n }

var site = Site{Namespace: "serving", Image: "registry.example.com/spokegate:1", Doors: []string{"door-1:8090", "door-2:8090"}, Gateway: "edge", ModelsClaim: "models"}

// awkward has in it what YAML would read as something else.
var awkward = Deployment{
	Stack: "plain", Model: "/models/it's: {a} #1", Image: "vllm:1", GPU: "H100", GPUs: 8, Replicas: number(3),
	EngineArgs: []string{"--tensor-parallel-size=8", "yes", "0x10", `--json={"a":"b"}`, "- x", "{{.Name}}", "$(HOME)"},
}

func TestGolden(t *testing.T) {
	templates, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, stack := range templates.Stacks() {
		small := Deployment{Stack: stack, Model: "org/model", Image: "engine:2"}
		big := awkward
		big.Stack = stack
		got, err := templates.Render("north", site, []Item{{"small", nil, small}, {"Big_one@x", []string{"org/big", "a-big"}, big}})
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := templates.Render("north", Site{Image: "spokegate:1"}, []Item{{"small", nil, small}}); err != nil || strings.Contains(string(plain), "claim") {
			t.Errorf("%s without a volume: %v", stack, err)
		}
		again, err := templates.Render("north", site, []Item{{"Big_one@x", []string{"a-big", "org/big"}, big}, {"small", nil, small}})
		if err != nil || string(again) != string(got) {
			t.Errorf("%s: the order makes a difference, %v", stack, err)
		}
		golden := filepath.Join("testdata", stack+".yaml")
		if *rewrite {
			if err := os.WriteFile(golden, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s differs from %s:\n%s", stack, golden, got)
		}
	}
}

// TestSpokeLabel: a spoke's name is its label, as the chart has it, wherever it can be one.
func TestSpokeLabel(t *testing.T) {
	for spoke, want := range map[string]string{"north": "north", "eu.north-1": "eu.north-1", "North_1": "North_1", "north@eu": Name("north@eu"), "north-": Name("north-")} {
		if got := label(spoke); got != want || !labelRE.MatchString(got) {
			t.Errorf("%s: %s, want %s", spoke, got, want)
		}
	}
}

// TestReadBack: whatever stands in a setting, YAML reads it back as it was.
func TestReadBack(t *testing.T) {
	templates, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	got, err := templates.Render("north", site, []Item{{"e", []string{"m"}, awkward}})
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Metadata struct{ Name, Namespace string }
		Spec     struct {
			Replicas int
			Template struct {
				Spec struct {
					InitContainers []struct {
						Image string
						Args  []string
					} `yaml:"initContainers"`
				}
			}
		}
	}
	if err := yaml.NewDecoder(strings.NewReader(string(got))).Decode(&d); err != nil {
		t.Fatal(err)
	}
	engine := d.Spec.Template.Spec.InitContainers[0]
	if d.Metadata.Name != "e" || d.Metadata.Namespace != "serving" || d.Spec.Replicas != 3 || engine.Image != "vllm:1" || engine.Args[0] != awkward.Model {
		t.Errorf("%+v", d)
	}
	for i, want := range awkward.EngineArgs {
		if got := engine.Args[len(engine.Args)-len(awkward.EngineArgs)+i]; strings.ReplaceAll(got, "$$(", "$(") != want {
			t.Errorf("argument %q became %q", want, got)
		}
	}
}

func TestRefused(t *testing.T) {
	templates, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	ok := Deployment{Stack: "plain", Model: "m", Image: "i"}
	if _, err := templates.Render("north", Site{}, []Item{{"e", nil, ok}}); err == nil || !strings.Contains(err.Error(), "the spoke's deployment.image is missing") {
		t.Error(err)
	}
	if _, err := templates.Render("north", site, []Item{{"e", nil, Deployment{Stack: "none"}}}); err == nil ||
		err.Error() != `endpoint e: there is no stack "none"; there are dynamo, llm-d, plain` {
		t.Error(err)
	}
	for want, change := range map[string]func(*Deployment){
		"stack:":       func(d *Deployment) { d.Stack = "../plain" },
		"model:":       func(d *Deployment) { d.Model = "a\nb" },
		"image:":       func(d *Deployment) { d.Image = "a b" },
		"replicas:":    func(d *Deployment) { d.Replicas = number(1001) },
		"gpu:":         func(d *Deployment) { d.GPU = "H 100" },
		"gpus:":        func(d *Deployment) { d.GPUs = -1 },
		"engine_args:": func(d *Deployment) { d.EngineArgs = []string{""} },
	} {
		d := ok
		if change(&d); d.Check() == nil || !strings.HasPrefix(d.Check().Error(), want) {
			t.Errorf("%s: %v", want, d.Check())
		}
	}
	if err := ok.Check(); err != nil {
		t.Error(err)
	}
	for want, s := range map[string]Site{
		"namespace:": {Namespace: "A"}, "gateway:": {Gateway: "-"}, "models_claim:": {ModelsClaim: "a.b"}, "image:": {Image: "a\"b"}, "doors:": {Doors: []string{"door"}},
		"fleet_issuer:": {FleetIssuer: "A"}, "door_name:": {DoorName: "a b"},
	} {
		if err := s.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestOwnTemplates: a folder's go before the built-in ones, and what is no Kubernetes is told.
func TestOwnTemplates(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"plain.yaml.tmpl": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{quote .Name}}}\n",
		"mine.yaml.tmpl":  "apiVersion: v1\n", "empty.yaml.tmpl": "\n", "wrong.yaml.tmpl": "{{.Nothing}}", "broken.yaml.tmpl": "a: [\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	templates, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := templates.Render("north", Site{}, []Item{{"e", nil, Deployment{Stack: "plain"}}})
	if want := "# What spoke north runs, as the hub wants it. Generated: changes here are lost.\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"e\"}\n"; err != nil || string(out) != want {
		t.Errorf("%s, %v", out, err)
	}
	for stack, want := range map[string]string{"mine": "document 1 wants apiVersion, kind and metadata.name", "empty": "it is empty", "wrong": "Nothing", "broken": "no Kubernetes"} {
		if _, err := templates.Render("north", Site{}, []Item{{"e", nil, Deployment{Stack: stack}}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", stack, err)
		}
	}
	if _, err := Load(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a folder that is not there")
	}
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml.tmpl"), []byte("{{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("a template that cannot be read")
	}
}

func TestNames(t *testing.T) {
	for endpoint, want := range map[string]string{
		"large": "large", "a-1": "a-1", "Large": "large-b5e8df7d", "a_b": "", "a.b": "", "a@b": "", "a-": "", strings.Repeat("a", 63): "",
	} {
		got := Name(endpoint)
		if want != "" && want != got && endpoint != "Large" || !nameRE.MatchString(got) || len(got) > 50 {
			t.Errorf("%s is called %s", endpoint, got)
		}
	}
	if Name("a_b") == Name("a.b") || Name("Large") == Name("large") {
		t.Error("two endpoints have one name")
	}
}
