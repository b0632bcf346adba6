package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/roster"
)

// List is the file, in YAML or JSON. Unknown keys fail.
type List struct {
	Workers []roster.Entry `yaml:"workers"`
}

// Parse reads a file. All of its workers serve the endpoint, and none is ready. The error names every mistake that it finds.
func Parse(data []byte, endpoint string) ([]roster.Worker, error) {
	if err := plain(data); err != nil {
		return nil, err
	}
	var l List
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := dec.Decode(&l); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	if l.Workers == nil {
		return nil, errors.New("workers is missing: a list, which may be empty ([])")
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document")
	}
	// A fleet of its own says what is wrong with a worker, or with two of them.
	trial := fleet.NewTrial()
	list := make([]roster.Worker, 0, len(l.Workers))
	var wrong []error
	for i, e := range l.Workers {
		t, err := e.Worker(endpoint)
		if err == nil {
			err = trial.Join(t.Worker)
		}
		if errors.Is(err, fleet.ErrDuplicate) {
			err = errors.New(strings.TrimSuffix(err.Error(), fleet.ErrDuplicate.Error()) + "twice in this file")
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("workers[%d]: %w", i, err))
		}
		list = append(list, t)
	}
	return list, errors.Join(wrong...)
}

// mostNested is more than the file needs, and the YAML library can bear.
const mostNested = 16

// plain refuses what no such file needs and what the YAML library is not safe with: tags, anchors, and nesting without end.
func plain(data []byte) error {
	brackets, entries, line := 0, 0, 0
	for _, t := range lexer.Tokenize(string(data)) {
		if t.Position.Line != line {
			line, entries = t.Position.Line, 0
		}
		switch t.Type {
		case token.TagType, token.AnchorType, token.AliasType, token.MergeKeyType, token.DirectiveType:
			return fmt.Errorf("[%d:%d] tags, anchors, aliases and directives are not taken", t.Position.Line, t.Position.Column)
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			entries++
		}
		if max(brackets, entries) > mostNested || t.Position.IndentNum > 4*mostNested {
			return fmt.Errorf("[%d:%d] nested more than %d levels deep", t.Position.Line, t.Position.Column, mostNested)
		}
	}
	return nil
}
