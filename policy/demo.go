package policy

import (
	"bytes"
	_ "embed"
	"text/template"
)

//go:embed demo.yaml.tmpl
var demoTemplate string

// Demo is a policy for a first try, with comments for people: one endpoint, these models on it, one team, one key.
// keyHash is the key's SHA-256 in hex. It answers nil if a name could not stand in a policy.
func Demo(endpoint string, models []string, keyHash string) []byte {
	var out bytes.Buffer
	t, err := template.New("demo").Parse(demoTemplate)
	if err != nil {
		return nil
	}
	err = t.Execute(&out, struct {
		Endpoint string
		Models   []string
		KeyHash  string
	}{endpoint, models, keyHash})
	if err != nil {
		return nil
	}
	if _, err := Parse("demo", out.Bytes()); err != nil {
		return nil
	}
	return out.Bytes()
}
