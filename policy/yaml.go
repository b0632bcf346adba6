package policy

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxFile bounds a policy file, in bytes: about a hundred thousand keys.
const MaxFile = 16 << 20

// maxDepth bounds nesting: the parser recurses, and a policy needs six levels.
const maxDepth = 32

// kind is what a node is, in the words of messages.
type kind string

const (
	list    kind = "a list"
	mapping kind = "a mapping"
	text    kind = "text"
	number  kind = "a number"
	boolean kind = "true or false"
	nothing kind = "nothing"
)

// node is a value of the file and where it stands. Only the plain part of YAML exists here: no anchors, no tags.
type node struct {
	kind      kind
	text      string // scalars: as written, without quotes
	line, col int
	members   []member // of a mapping, in order; names are unique
	items     []*node  // of a list
}

type member struct {
	name      string
	line, col int
	value     *node
}

func (n *node) member(name string) *node {
	for _, m := range n.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// reader turns bytes into nodes and collects what is not allowed on the way.
type reader struct {
	file     string
	problems Problems
}

func (r *reader) add(line, col int, path, format string, args ...any) {
	r.problems = append(r.problems, Problem{File: r.file, Line: line, Column: col, Path: path, Text: fmt.Sprintf(format, args...)})
}

// read gives the file's one document, or nil when there is a problem that leaves nothing to look at.
func (r *reader) read(src []byte) *node {
	if len(src) > MaxFile {
		r.add(1, 1, "", "the file has %d bytes; a policy file may have %d", len(src), MaxFile)
		return nil
	}
	if !r.readable(src) {
		return nil
	}
	tokens := lexer.Tokenize(string(src))
	if t := tooDeep(tokens); t != nil {
		r.add(t.Position.Line, t.Position.Column, "", "nested more than %d levels deep", maxDepth)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // duplicates are reported by object, with the others
	if err != nil {
		r.syntax(err)
		return nil
	}
	return r.document(file)
}

// readable checks what YAML demands of the bytes and the lexer takes for granted.
func (r *reader) readable(src []byte) bool {
	if bytes.HasPrefix(src, []byte("\xef\xbb\xbf")) {
		r.add(1, 1, "", "the file begins with a byte order mark; save it as UTF-8 without one")
		return false
	}
	line, start := 1, 0
	for i := 0; i < len(src); {
		c, size := utf8.DecodeRune(src[i:])
		switch {
		case c == '\n':
			line, start = line+1, i+1
		case c == utf8.RuneError && size == 1:
			r.add(line, i-start+1, "", "byte %#02x is not UTF-8", src[i])
			return false
		case c < ' ' && c != '\t' && c != '\r', c == 0x7f:
			r.add(line, i-start+1, "", "control character %#02x is not allowed", c)
			return false
		}
		i += size
	}
	return true
}

// tooDeep finds the token at which nesting passes maxDepth. Brackets nest, and so does each "-" or "?" on one line; what
// nests by indentation alone costs a column a level.
func tooDeep(tokens token.Tokens) *token.Token {
	var brackets, dashes, line int
	for _, t := range tokens {
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			dashes++
		case token.MappingValueType:
			if t.Position.IndentNum > 4*maxDepth {
				return t
			}
		}
		if brackets > maxDepth || dashes > maxDepth {
			return t
		}
	}
	return nil
}

// syntax reports the parser's complaint without the piece of source that it likes to print: it could hold a secret.
func (r *reader) syntax(err error) {
	var e yaml.Error
	if errors.As(err, &e) && e.GetToken() != nil && e.GetToken().Position != nil {
		at := e.GetToken().Position
		r.add(at.Line, at.Column, "", "not valid YAML: %s", e.GetMessage())
		return
	}
	r.add(1, 1, "", "not valid YAML")
}

func (r *reader) document(file *ast.File) *node {
	if len(file.Docs) > 1 {
		line, col := 1, 1
		if d := file.Docs[1]; d.Start != nil {
			line, col = d.Start.Position.Line, d.Start.Position.Column
		}
		r.add(line, col, "", "a second document or a directive; a policy file is one plain document")
		return nil
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		r.add(1, 1, "", "the file is empty")
		return nil
	}
	return r.node(file.Docs[0].Body, "")
}
