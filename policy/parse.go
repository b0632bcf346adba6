package policy

import (
	"reflect"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// Parse reads a policy file strictly and checks it whole. name is what messages call the file. An error is [Problems]:
// all of them, in the order of the file. The set has no revision: whoever puts it in force numbers it.
//
// Decoding and checking are two passes over the same content, so a mistake of form and a reference to nothing are told
// in one go.
func Parse(name string, yaml []byte) (*policyv1.Set, error) {
	p := &parse{decoder: decoder{reader: &reader{file: name}, places: map[any]*node{}}}
	root := p.read(yaml)
	if root == nil {
		return nil, p.problems.err()
	}
	var f *File
	p.value(root, "", "", reflect.ValueOf(&f).Elem())
	p.filled(root, f)
	set, keys := p.set(f)
	c := checker{}
	c.set(set, keys)
	for _, problem := range c.problems {
		p.problems = append(p.problems, p.locate(problem, root))
	}
	if len(p.problems) > 0 {
		return nil, p.problems.sorted().err()
	}
	return set, nil
}

type parse struct{ decoder }

// filled demands what a file must have and a set from elsewhere need not: half a file, cut by an editor that is still
// writing, must not pass for a policy that permits less.
func (p *parse) filled(root *node, f *File) {
	if root.kind != mapping {
		return // said already
	}
	if f.Models == nil && root.member("models") == nil {
		p.lacks(root, "models", "is missing; want at least one model")
	}
	if f.Endpoints == nil && root.member("endpoints") == nil {
		p.lacks(root, "endpoints", "is missing; want at least one endpoint")
	}
}

func (p *parse) lacks(root *node, path, what string) {
	p.add(root.line, root.col, path, "%s", what)
	p.problems[len(p.problems)-1].lacking = true
}

// locate gives a checker's problem the line and column of the value that it is about, or of what should hold it.
func (p *parse) locate(problem Problem, root *node) Problem {
	n := p.places[problem.at.owner]
	if n == nil {
		n = root
	}
	if m := n.member(problem.at.field); m != nil {
		n = m
	} else {
		problem.lacking = problem.at.field != "" && n.kind == mapping
	}
	if m := n.member(problem.at.member); m != nil {
		n = m
	}
	if i := problem.at.index; i >= 0 && i < len(n.items) {
		n = n.items[i]
	}
	problem.File, problem.Line, problem.Column = p.file, n.line, n.col
	return problem
}
