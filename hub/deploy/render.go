package deploy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/goccy/go-yaml"
)

//go:embed templates/*.yaml.tmpl
var builtIn embed.FS

const suffix = ".yaml.tmpl"

// Templates are those of all stacks.
type Templates struct{ byStack map[string]*template.Template }

// Load gives the built-in templates, and in their place or beside them those of a folder, STACK.yaml.tmpl; "": no folder.
func Load(folder string) (*Templates, error) {
	t := &Templates{map[string]*template.Template{}}
	entries, err := builtIn.ReadDir("templates")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := builtIn.ReadFile("templates/" + e.Name())
		if err == nil {
			err = t.add(e.Name(), string(text))
		}
		if err != nil {
			return nil, err
		}
	}
	if folder == "" {
		return t, nil
	}
	if _, err := os.ReadDir(folder); err != nil {
		return nil, fmt.Errorf("templates of deployments: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"+suffix))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil {
			err = t.add(filepath.Base(f), string(text))
		}
		if err != nil {
			return nil, fmt.Errorf("templates of deployments: %w", err)
		}
	}
	return t, nil
}

func (t *Templates) add(file, text string) error {
	stack := strings.TrimSuffix(file, suffix)
	if !stackRE.MatchString(stack) {
		return fmt.Errorf("%s is no name of a stack", file)
	}
	parsed, err := template.New(file).Option("missingkey=error").Funcs(template.FuncMap{"quote": quote, "arg": arg, "join": strings.Join, "need": need}).Parse(text)
	t.byStack[stack] = parsed
	return err
}

// quote writes a text so that YAML reads it back as that text, whatever it is.
func quote(s any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(fmt.Sprint(s))
	return strings.TrimSpace(b.String()), err
}

// arg is quote for an argument of a container, in which Kubernetes would put variables into the place of $(NAME).
func arg(s any) (string, error) { return quote(strings.ReplaceAll(fmt.Sprint(s), "$(", "$$(")) }

// need fails where a setting is missing that the template cannot do without.
func need(what string, value any) (any, error) {
	if s, ok := value.(string); ok && s == "" {
		return nil, errors.New(what + " is missing, and this stack wants it")
	}
	return value, nil
}

// Stacks are the names of all stacks, sorted.
func (t *Templates) Stacks() []string { return slices.Sorted(maps.Keys(t.byStack)) }

// Item is an endpoint that is to be rendered.
type Item struct {
	Endpoint string
	Models   []string // what requests that reach the engine call its model
	Deployment
}

// data is what a template sees.
type data struct {
	Name       string // for Kubernetes; Endpoint is the endpoint's own
	Endpoint   string
	Spoke      string
	SpokeLabel string // as a label's value, which the chart's network policies select by
	Models     []string
	Site
	Engine   Deployment
	Replicas int
}

// Render gives the YAML of all deployments of a spoke, in order of endpoint.
func (t *Templates) Render(spoke string, site Site, items []Item) ([]byte, error) {
	site.Namespace, site.Gateway = cmp.Or(site.Namespace, "spokegate"), cmp.Or(site.Gateway, "spokegate")
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	var out bytes.Buffer
	fmt.Fprintf(&out, "# What spoke %s runs, as the hub wants it. Generated: changes here are lost.\n", spoke)
	for _, i := range items {
		tmpl := t.byStack[i.Stack]
		if tmpl == nil {
			return nil, fmt.Errorf("endpoint %s: there is no stack %q; there are %s", i.Endpoint, i.Stack, strings.Join(t.Stacks(), ", "))
		}
		d := data{
			Name: Name(i.Endpoint), Endpoint: i.Endpoint, Spoke: spoke, SpokeLabel: label(spoke), Site: site, Engine: i.Deployment, Replicas: i.Count(),
			Models: slices.Sorted(slices.Values(i.Models)),
		}
		var one bytes.Buffer
		if err := tmpl.Execute(&one, d); err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", i.Endpoint, err)
		}
		if err := objects(one.Bytes()); err != nil {
			return nil, fmt.Errorf("endpoint %s: what the template of stack %s makes is no Kubernetes: %w", i.Endpoint, i.Stack, err)
		}
		out.WriteString("---\n")
		out.Write(bytes.TrimPrefix(bytes.TrimSpace(one.Bytes()), []byte("---\n")))
		out.WriteString("\n")
	}
	return out.Bytes(), nil
}

// objects checks that a text is YAML, and each document an object of Kubernetes.
func objects(text []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	for n := 1; ; n++ {
		var o struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string `yaml:"kind"`
			Metadata   struct {
				Name string `yaml:"name"`
			} `yaml:"metadata"`
		}
		err := d.Decode(&o)
		if err == io.EOF {
			if n == 1 {
				return errors.New("it is empty")
			}
			return nil
		}
		if err != nil {
			return err
		}
		if o.APIVersion == "" || o.Kind == "" || o.Metadata.Name == "" {
			return fmt.Errorf("document %d wants apiVersion, kind and metadata.name", n)
		}
	}
}

// Name is an endpoint's name for Kubernetes. One that is none of its names gets a piece of its hash, so that two never meet.
func Name(endpoint string) string {
	if nameRE.MatchString(endpoint) && len(endpoint) <= 50 { // room for what templates add
		return endpoint
	}
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(endpoint))
	sum := sha256.Sum256([]byte(endpoint))
	return strings.Trim(clean[:min(len(clean), 41)], "-") + "-" + hex.EncodeToString(sum[:4])
}

// label is a name as a label's value: itself where it is one.
func label(name string) string {
	if labelRE.MatchString(name) {
		return name
	}
	return Name(name)
}
