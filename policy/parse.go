package policy

import (
	"reflect"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
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
	if i := problem.at.index; i >= 0 && i < len(n.items) {
		n = n.items[i]
	}
	problem.File, problem.Line, problem.Column = p.file, n.line, n.col
	return problem
}

// set makes the set, and the keys in the order of the file.
func (p *parse) set(f *File) (*policyv1.Set, []*policyv1.Key) {
	set := &policyv1.Set{}
	if f.Platform != nil {
		set.Platform = &policyv1.Platform{Limits: p.limits(f.Platform.Limits)}
		p.moved(set.Platform, f.Platform)
	}
	for _, e := range f.Models {
		m := &policyv1.Model{Name: e.Name, Endpoint: e.Endpoint, Limits: p.limits(e.Limits)}
		p.moved(m, e)
		set.Models = append(set.Models, m)
	}
	for _, e := range f.Endpoints {
		m := &policyv1.Endpoint{Name: e.Name, AllowFields: e.AllowFields, Routing: p.routing(e.Routing)}
		p.moved(m, e)
		set.Endpoints = append(set.Endpoints, m)
	}
	for _, e := range f.Teams {
		m := &policyv1.Team{Name: e.Name, Models: e.Models, Limits: p.limits(e.Limits)}
		p.moved(m, e)
		set.Teams = append(set.Teams, m)
	}
	keys := make([]*policyv1.Key, len(f.Keys))
	for i, e := range f.Keys {
		keys[i] = p.key(e, label("keys", e.ID, i))
	}
	set.Keys = KeyShards(keys)
	return set, keys
}

// moved says that a message stands where its entry stood.
func (p *parse) moved(message, entry any) { p.places[message] = p.places[entry] }

func (p *parse) limits(entries []*LimitEntry) []*policyv1.Limit {
	var out []*policyv1.Limit
	for _, e := range entries {
		l := &policyv1.Limit{
			Model: e.Model, RequestsPerSecond: e.RequestsPerSecond, Burst: e.Burst, Concurrency: e.Concurrency,
		}
		p.moved(l, e)
		out = append(out, l)
	}
	return out
}

func (p *parse) routing(e *RoutingEntry) *policyv1.Routing {
	if e == nil {
		return nil
	}
	m := &policyv1.Routing{OverlapWeight: e.OverlapWeight, Temperature: e.Temperature, BlockBytes: e.BlockBytes}
	p.moved(m, e)
	return m
}

func (p *parse) key(e *KeyEntry, path string) *policyv1.Key {
	k := &policyv1.Key{Id: e.ID, Team: e.Team, Models: e.Models, Limits: p.limits(e.Limits), Revoked: e.Revoked}
	p.moved(k, e)
	if n := p.places[e].member("sha256"); n != nil && n.kind == text {
		k.Sha256 = p.hash(n, path)
	}
	if n := p.places[e].member("expires"); n != nil && n.kind == text {
		t, err := time.Parse(time.RFC3339, n.text)
		if err != nil {
			p.add(n.line, n.col, path+".expires", "want a date and time with a zone, like 2027-01-31T00:00:00Z")
			return k
		}
		k.ExpiresAt = timestamppb.New(t)
	}
	return k
}

// hash never repeats what stands there: it may be a key that someone took for its hash.
func (p *parse) hash(n *node, path string) []byte {
	if _, secret := identity.ParseKey(n.text); secret {
		p.add(n.line, n.col, path+".sha256", "this is a key itself, not its hash: whoever reads this file can use it; make another with `spokegate key new` and give that one's hash")
		return nil
	}
	h, err := identity.ParseHash(n.text)
	if err != nil {
		p.add(n.line, n.col, path+".sha256", "%v", err)
		return nil
	}
	return h[:]
}
