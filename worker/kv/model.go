package kv

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// Model is what must be known of a model to announce its blocks.
type Model struct {
	profile    *workerv1.Profile
	vocabulary vocabulary
}

// simTemplate renders plain messages as the simulator does.
const simTemplate = "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}<|assistant|>\n"

// SimModel is the simulator's: a token is four bytes.
func SimModel() *Model {
	return &Model{&workerv1.Profile{ChatTemplate: simTemplate}, rawTokens{}}
}

// ReadModel reads a model's folder: tokenizer.json, tokenizer_config.json, and its chat template.
func ReadModel(dir string) (*Model, error) {
	var t tokenizerFile
	if err := readJSON(filepath.Join(dir, "tokenizer.json"), &t); err != nil {
		return nil, err
	}
	scheme, err := t.scheme()
	if err != nil {
		return nil, err
	}
	m := &Model{profile: t.profile()}
	if m.vocabulary, err = newPieces(&t, scheme); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return m, m.configure(dir, &t)
}

// tokenizerConfig is what we need of a tokenizer_config.json.
type tokenizerConfig struct {
	BOS          tokenText       `json:"bos_token"`
	EOS          tokenText       `json:"eos_token"`
	AddBOS       *bool           `json:"add_bos_token"`
	ChatTemplate json.RawMessage `json:"chat_template"`
}

// tokenText is a token as text, or as an object with it.
type tokenText string

// UnmarshalJSON takes both forms.
func (t *tokenText) UnmarshalJSON(data []byte) error {
	var object struct{ Content string }
	if json.Unmarshal(data, (*string)(t)) == nil {
		return nil
	}
	err := json.Unmarshal(data, &object)
	*t = tokenText(object.Content)
	return err
}

func (m *Model) configure(dir string, t *tokenizerFile) error {
	var c tokenizerConfig
	if err := readJSON(filepath.Join(dir, "tokenizer_config.json"), &c); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m.profile.BosToken, m.profile.EosToken = string(c.BOS), string(c.EOS)
	m.profile.AddsBos = c.BOS != "" && t.putsFirst(string(c.BOS))
	if c.AddBOS != nil {
		m.profile.AddsBos = *c.AddBOS
	}
	var err error
	m.profile.ChatTemplate, err = chatTemplate(dir, c.ChatTemplate)
	return err
}

// chatTemplate is in a file of its own, or in the configuration: as one, or as several with names, of which "default" counts.
func chatTemplate(dir string, configured json.RawMessage) (string, error) {
	own, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja"))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return string(own), err
	}
	if len(configured) == 0 || string(configured) == "null" {
		var file struct {
			ChatTemplate json.RawMessage `json:"chat_template"`
		}
		if err := readJSON(filepath.Join(dir, "chat_template.json"), &file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		configured = file.ChatTemplate
	}
	if len(configured) == 0 {
		return "", nil
	}
	var one string
	if json.Unmarshal(configured, &one) == nil {
		return one, nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(configured, &named); err != nil {
		return "", fmt.Errorf("chat_template: %w", err)
	}
	for _, n := range named {
		if n.Name == "default" {
			return n.Template, nil
		}
	}
	return "", nil
}

func readJSON(path string, to any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
