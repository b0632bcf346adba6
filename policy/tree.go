package policy

import (
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// node copies one value of the parser's tree. What a policy may not use is reported and becomes nothing.
func (r *reader) node(n ast.Node, path string) *node {
	out := &node{kind: nothing, line: 1, col: 1}
	if n == nil {
		return out
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		out.line, out.col, out.text = t.Position.Line, t.Position.Column, t.Value
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		r.mapping(out, n.Values, path)
		if n.IsFlowStyle {
			out.line, out.col = n.Start.Position.Line, n.Start.Position.Column
		}
	case *ast.MappingValueNode:
		r.mapping(out, []*ast.MappingValueNode{n}, path)
	case *ast.SequenceNode:
		out.kind = list
		for i, v := range n.Values {
			out.items = append(out.items, r.node(v, path+"["+strconv.Itoa(i)+"]"))
		}
	case *ast.StringNode:
		out.kind, out.text = text, n.Value
		if n.Token.Type == token.StringType && floatRE.MatchString(n.Value) {
			out.kind = number // the parser takes 1e9 for text
		}
	case *ast.LiteralNode:
		out.kind = text
		if n.Value != nil {
			out.text = n.Value.Value
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind = number
	case *ast.BoolNode:
		out.kind = boolean
	case *ast.NullNode:
		out.text = ""
	default:
		r.add(out.line, out.col, path, "anchors, aliases, tags and directives are not allowed; write the value itself")
	}
	return out
}

// mapping copies members; a block mapping stands where its first key stands.
func (r *reader) mapping(out *node, values []*ast.MappingValueNode, path string) {
	out.kind, out.text = mapping, ""
	lines := make(map[string]int, len(values))
	for i, v := range values {
		key := v.Key.GetToken()
		m := member{name: keyText(v.Key, key), line: key.Position.Line, col: key.Position.Column}
		if i == 0 {
			out.line, out.col = m.line, m.col
		}
		switch v.Key.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		default:
			r.add(m.line, m.col, path, "only plain keys are allowed; no \"?\", no \"<<\", no anchors or tags")
			continue
		}
		if first, dup := lines[m.name]; dup {
			r.add(m.line, m.col, join(path, m.name), "given twice; the first is in line %d", first)
			continue
		}
		lines[m.name] = m.line
		m.value = r.node(v.Value, join(path, m.name))
		out.members = append(out.members, m)
	}
}

func keyText(key ast.MapKeyNode, t *token.Token) string {
	if s, ok := key.(*ast.StringNode); ok {
		return s.Value
	}
	return t.Value
}

// join adds a member's name to a path. Names that are not ours are repeated with care: see quote.
func join(path, name string) string {
	if !validID(name) {
		name = quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}
