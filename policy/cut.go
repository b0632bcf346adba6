package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// The kinds of resources, as they are named on the way from the hub.
const (
	KindEndpoint = "Endpoint"
	KindIssuer   = "Issuer"
	KindKeyShard = "KeyShard"
	KindModel    = "Model"
	KindPlatform = "Platform"
	KindTeam     = "Team"
)

// Kinds are all kinds, in the order in which a cut has them.
var Kinds = []string{KindEndpoint, KindIssuer, KindKeyShard, KindModel, KindPlatform, KindTeam}

// Ref names a resource. The platform has the name "", a shard of keys its number in decimal.
type Ref struct{ Kind, Name string }

// Resource is one as it travels and as it is kept.
type Resource struct {
	Ref
	// Version is of the content alone: the first 16 bytes of the body's SHA-256, in hex. So it is the same wherever, and
	// whenever, the content is.
	Version string
	// Body is the message's deterministic encoding. Nobody may change it.
	Body []byte
}

// Encode makes a resource of a message. One that cannot be encoded (a string that is not UTF-8) gets a body that nobody can
// read, and so is refused where it is compiled.
func Encode(kind, name string, m proto.Message) Resource {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		body = append([]byte{0xff}, err.Error()...)
	}
	return NewResource(kind, name, body)
}

// NewResource is the resource with this body.
func NewResource(kind, name string, body []byte) Resource {
	sum := sha256.Sum256(body)
	return Resource{Ref{kind, name}, hex.EncodeToString(sum[:16]), body}
}

// EncodeShard makes a resource of a shard of keys. Their order makes no difference.
func EncodeShard(s *policyv1.KeyShard) Resource {
	keys := slices.Clone(s.GetKeys())
	slices.SortStableFunc(keys, compareKeys)
	return Encode(KindKeyShard, strconv.FormatUint(uint64(s.GetNumber()), 10), &policyv1.KeyShard{Number: s.GetNumber(), Keys: keys})
}

// Cut is one revision as it travels: its resources, encoded. It is immutable, and shares with the cut that it was made from
// what is equal.
type Cut struct {
	revision *policyv1.Revision
	parts    [6]*part // by place in Kinds; nil: none of the kind
	digest   []byte
}

// part is all resources of one kind.
type part struct {
	names  []string // sorted
	byName map[string]Resource
	digest [sha256.Size]byte
}

// NewCut encodes a set. Of resources with one name the last counts: see Compile, which refuses such sets.
func NewCut(set *policyv1.Set) *Cut {
	var all []Resource
	for _, e := range set.GetEndpoints() {
		all = append(all, Encode(KindEndpoint, e.GetName(), e))
	}
	for _, i := range set.GetIssuers() {
		all = append(all, Encode(KindIssuer, i.GetName(), i))
	}
	for _, s := range set.GetKeys() {
		all = append(all, EncodeShard(s))
	}
	for _, m := range set.GetModels() {
		all = append(all, Encode(KindModel, m.GetName(), m))
	}
	if set.GetPlatform() != nil {
		all = append(all, Encode(KindPlatform, "", set.GetPlatform()))
	}
	for _, t := range set.GetTeams() {
		all = append(all, Encode(KindTeam, t.GetName(), t))
	}
	return (&Cut{}).Next(set.GetRevision(), all, nil)
}

// Next is the cut that follows, under a revision of its own. Of a revision the digest is filled in.
func (c *Cut) Next(revision *policyv1.Revision, changed []Resource, removed []Ref) *Cut {
	out := &Cut{parts: c.parts}
	fresh := [len(c.parts)]*part{}
	open := func(kind string) map[string]Resource {
		i := slices.Index(Kinds, kind)
		if i < 0 {
			return nil // of another release, which knows more kinds; the digest will not fit
		}
		if fresh[i] == nil {
			fresh[i] = &part{byName: map[string]Resource{}}
			if old := c.parts[i]; old != nil {
				fresh[i].byName = maps.Clone(old.byName)
			}
		}
		return fresh[i].byName
	}
	for _, r := range removed {
		delete(open(r.Kind), r.Name)
	}
	for _, r := range changed {
		if m := open(r.Kind); m != nil {
			m[r.Name] = r
		}
	}
	for i, p := range fresh {
		if p != nil {
			out.parts[i] = p.closed(c.parts[i])
		}
	}
	out.digest = out.sum()
	out.revision = &policyv1.Revision{
		Number: revision.GetNumber(), Digest: out.digest, Message: revision.GetMessage(), MadeAt: revision.GetMadeAt(),
	}
	return out
}

// closed gives a part its order and digest; it is old where it has the same content, and nil where it has none.
func (p *part) closed(old *part) *part {
	if len(p.byName) == 0 {
		return nil
	}
	p.names = slices.Sorted(maps.Keys(p.byName))
	sum, line := sha256.New(), []byte(nil)
	for _, name := range p.names {
		line = append(strconv.AppendInt(line[:0], int64(len(name)), 10), ':')
		line = append(append(line, name...), p.byName[name].Version...) // versions are of one length
		sum.Write(line)
	}
	sum.Sum(p.digest[:0])
	if old != nil && old.digest == p.digest {
		return old
	}
	return p
}

func (c *Cut) sum() []byte {
	sum := sha256.New()
	for i, p := range c.parts {
		if p != nil {
			fmt.Fprintf(sum, "%s ", Kinds[i])
			sum.Write(p.digest[:])
		}
	}
	return sum.Sum(nil)
}

// Revision says which it is, with the digest filled in. Nobody may change it.
func (c *Cut) Revision() *policyv1.Revision { return c.revision }

// Digest is of the content alone: SHA-256 over kinds, names and versions in their order. Equal content has an equal digest,
// in whatever order a file has it.
func (c *Cut) Digest() []byte { return c.digest }

func (c *Cut) part(kind string) *part {
	if i := slices.Index(Kinds, kind); i >= 0 {
		return c.parts[i]
	}
	return nil
}

// Get is one resource.
func (c *Cut) Get(r Ref) (Resource, bool) {
	p := c.part(r.Kind)
	if p == nil {
		return Resource{}, false
	}
	out, ok := p.byName[r.Name]
	return out, ok
}

// Len is how many resources there are.
func (c *Cut) Len() (n int) {
	for _, p := range c.parts {
		if p != nil {
			n += len(p.names)
		}
	}
	return n
}

// All are the resources, in order of kind and name.
func (c *Cut) All() iter.Seq[Resource] {
	return func(yield func(Resource) bool) {
		for _, kind := range Kinds {
			for r := range c.Of(kind) {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Of are the resources of one kind, in order of name.
func (c *Cut) Of(kind string) iter.Seq[Resource] {
	return func(yield func(Resource) bool) {
		p := c.part(kind)
		if p == nil {
			return
		}
		for _, name := range p.names {
			if !yield(p.byName[name]) {
				return
			}
		}
	}
}

// Diff is what must change to come from c to another cut, in order of kind and name. Kinds that the two share cost nothing.
func (c *Cut) Diff(to *Cut) (changed []Resource, removed []Ref) {
	for _, kind := range Kinds {
		more, less := c.diff(to, kind)
		changed, removed = append(changed, more...), append(removed, less...)
	}
	return changed, removed
}

func (c *Cut) diff(other *Cut, kind string) (changed []Resource, removed []Ref) {
	from, to := c.part(kind), other.part(kind)
	switch {
	case from == to || from != nil && to != nil && from.digest == to.digest:
		return nil, nil
	case from == nil:
		from = &part{}
	case to == nil:
		to = &part{}
	}
	for _, name := range to.names {
		if r := to.byName[name]; from.byName[name].Version != r.Version {
			changed = append(changed, r)
		}
	}
	for _, name := range from.names {
		if _, stays := to.byName[name]; !stays {
			removed = append(removed, Ref{kind, name})
		}
	}
	return changed, removed
}

// Same says whether two cuts have the same content; their revisions may differ. A cut that is nil has none.
func (c *Cut) Same(o *Cut) bool { return c != nil && o != nil && bytes.Equal(c.digest, o.digest) }
