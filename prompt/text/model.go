package text

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ardanlabs/jinja"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/openai"
)

// Why a request has no known text, or has one only up to a place.
var (
	// ErrOperation: this kind of request is rendered in ways of the engine's own.
	ErrOperation = errors.New("text: operation")
	// ErrImage, ErrAudio, ErrVideo and ErrParts: a message has one in it, or what is none of these and no text.
	ErrImage = errors.New("text: image")
	ErrAudio = errors.New("text: audio")
	ErrVideo = errors.New("text: video")
	ErrParts = errors.New("text: parts that are no text")
	// ErrTokens and ErrPrompts: the prompt is token ids, or there are several.
	ErrTokens  = errors.New("text: token ids")
	ErrPrompts = errors.New("text: prompts")
	// ErrTemplate: there is no chat template, it fails, or the request brings its own.
	ErrTemplate = errors.New("text: template")
)

// Model renders for one model. Safe for concurrent use.
type Model struct {
	template *jinja.Template // nil: none
	parts    bool            // the template takes lists of parts, and not strings
	roles    bool            // it knows the role "developer"
	bos, eos string
	addsBOS  bool
	norm     normaliser
}

// mostTemplate bounds a template, in bytes: the largest real ones have some 30,000. Its nesting is bounded by it, and so is the
// stack that reading it takes.
const mostTemplate = 128 << 10

// New makes a renderer of what a worker says of its model. The error says what this release does not know. It may take
// seconds for what was made to be slow.
func New(p *workerv1.Profile) (*Model, error) {
	if len(p.ChatTemplate) > mostTemplate {
		return nil, fmt.Errorf("chat template: %d bytes, at most %d are taken", len(p.ChatTemplate), mostTemplate)
	}
	m := &Model{bos: p.BosToken, eos: p.EosToken, addsBOS: p.AddsBos}
	var err error
	if m.norm, err = newNormaliser(p); err != nil {
		return nil, err
	}
	if p.ChatTemplate == "" {
		return m, nil
	}
	if m.template, err = compile(p.ChatTemplate); err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	m.parts = loopsOverParts.MatchString(p.ChatTemplate)
	m.roles = strings.Contains(p.ChatTemplate, `"developer"`) || strings.Contains(p.ChatTemplate, `'developer'`)
	return m, nil
}

// loopsOverParts finds a loop over a message's content: the engine gives such a template lists of parts.
var loopsOverParts = regexp.MustCompile(`\{%[-+]?\s*for\s+\w+\s+in\s+(\w+(\.content\b|\[\s*['"]content['"]\s*\])|content\b)`)

// Render appends the text of a request to dst. body is what req was scanned from; it is not kept. Where a message has more in
// it than text, what stands before that message is appended, beside the error that says so: prompts are equal as far as that
// is.
func (m *Model) Render(dst []byte, req *openai.Request, body []byte) ([]byte, error) {
	switch req.Op {
	case openai.Chat:
		said, err := m.chat(req, body)
		return m.norm.append(dst, said), err
	case openai.Completions:
		return m.completion(dst, req, body)
	}
	return dst, ErrOperation
}

// completion is the prompt as it is, behind the token that the tokenizer puts first.
func (m *Model) completion(dst []byte, req *openai.Request, body []byte) ([]byte, error) {
	prompt := get(req, body, "prompt")
	for i := 0; kind(prompt) == '['; i++ {
		var only []byte
		n := 0
		openai.Each(prompt, func(_, v []byte) bool { only, n = v, n+1; return n < 2 })
		if n != 1 || i > 0 {
			return dst, several(only)
		}
		prompt = only
	}
	if kind(prompt) != '"' {
		return dst, several(prompt)
	}
	if v := get(req, body, "add_special_tokens"); m.addsBOS && string(v) != "false" {
		dst = append(dst, m.bos...)
	}
	return m.norm.append(dst, unquote(prompt)), nil
}

// several says what a prompt is that is not one text, by one of its values.
func several(value []byte) error {
	if c := kind(value); c == '"' || c == '[' {
		return ErrPrompts
	}
	return ErrTokens
}

func get(req *openai.Request, body []byte, name string) []byte {
	s, ok := req.Get(name)
	if !ok {
		return nil
	}
	return body[s.Start:s.End]
}

// kind is the first byte of a value; 0 if there is none.
func kind(v []byte) byte {
	if len(v) == 0 {
		return 0
	}
	return v[0]
}

// Salt is a request's cache_salt: prompts with another share no blocks with it. Empty: it has none.
func Salt(req *openai.Request, body []byte) string { return unquote(get(req, body, "cache_salt")) }
