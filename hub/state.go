package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/hub/store"
	"github.com/spokegate/spokegate/policy"
)

// state is one revision as the hub holds it in memory: immutable, and sharing with the one before what is equal. Keys are there
// in their shards only, encoded and compiled; everything else of them is in the store.
type state struct {
	head   Revision
	cut    *policy.Cut // of all spokes together
	snap   *policy.Snapshot
	layout *layout
	spokes map[string]*spokePart

	ownSpokes bool // spokes is a copy of this state's own; while it is made
}

// layout is where everything runs. It is replaced whenever a model or an endpoint changes.
type layout struct {
	endpoints map[string]*endpointPart
	models    map[string]*policyv1.Model
}

// changed is a thing before and after a change; one that is not there is empty.
type changed struct {
	kind     Kind
	name     string
	old, new *thing
}

// empty is the state before the first revision.
func empty(now time.Time) (*state, error) {
	cut := policy.NewCut(&policyv1.Set{})
	snap, err := policy.CompileCut(nil, cut, now)
	return &state{
		cut: cut, snap: snap, layout: &layout{map[string]*endpointPart{}, map[string]*policyv1.Model{}}, spokes: map[string]*spokePart{},
	}, err
}

// next is the state that follows from changes under a revision, whose digest it fills in. It is not checked: see compile.
func (s *state) next(r Revision, list []changed) (*state, error) {
	out := &state{head: r, layout: s.layout, spokes: s.spokes}
	var resources []policy.Resource
	var removed []policy.Ref
	keys := map[uint32]*shardChange{}
	for _, c := range list {
		switch c.kind {
		case KindSpoke:
			out.setSpoke(s, c)
			continue
		case KindKey:
			changeShards(keys, c)
			continue
		case KindEndpoint, KindModel:
			out.relayout(s, c)
		}
		if c.new.message == nil {
			removed = append(removed, policy.Ref{Kind: resourceKinds[c.kind], Name: c.name})
		} else {
			resources = append(resources, policy.Encode(resourceKinds[c.kind], c.name, c.new.message))
		}
	}
	for n, k := range keys {
		resource, left, err := k.apply(s.cut, n)
		if err != nil {
			return nil, err
		}
		if left {
			resources = append(resources, resource)
		} else {
			removed = append(removed, resource.Ref)
		}
	}
	out.cut = s.cut.Next(&policyv1.Revision{Number: r.Number, Message: r.Message, MadeAt: timestamppb.New(r.At)}, resources, removed)
	out.head.Digest = fmt.Sprintf("%x", out.cut.Digest())
	return out, nil
}

// compile checks the state whole; what it shares with the one before is taken over.
func (s *state) compile(before *state, now time.Time) (err error) {
	s.snap, err = policy.CompileCut(before.snap, s.cut, now)
	return err
}

func (s *state) setSpoke(before *state, c changed) {
	if !s.ownSpokes {
		s.spokes, s.ownSpokes = maps.Clone(before.spokes), true
	}
	if c.new.raw == nil {
		delete(s.spokes, c.name)
	} else {
		s.spokes[c.name] = c.new.spoke
	}
}

func (s *state) relayout(before *state, c changed) {
	if s.layout == before.layout {
		s.layout = &layout{maps.Clone(before.layout.endpoints), maps.Clone(before.layout.models)}
	}
	switch m, is := c.new.message.(*policyv1.Model); {
	case c.kind == KindModel && is:
		s.layout.models[c.name] = m
	case c.kind == KindModel:
		delete(s.layout.models, c.name)
	case c.new.message == nil:
		delete(s.layout.endpoints, c.name)
	default:
		s.layout.endpoints[c.name] = c.new.endpoint
	}
}

// shardChange is what becomes of one shard of keys.
type shardChange struct {
	gone  map[string]bool // ids
	fresh []*policyv1.Key
}

func changeShards(shards map[uint32]*shardChange, c changed) {
	of := func(k *policyv1.Key) *shardChange {
		n := policy.KeyShards([]*policyv1.Key{k})[0].Number
		if shards[n] == nil {
			shards[n] = &shardChange{gone: map[string]bool{}}
		}
		return shards[n]
	}
	if k := c.old.key(); k != nil {
		of(k).gone[k.Id] = true
	}
	if k := c.new.key(); k != nil {
		of(k).fresh = append(of(k).fresh, k)
	}
}

// apply makes the shard anew; left is false where no key is in it any more.
func (k *shardChange) apply(cut *policy.Cut, n uint32) (r policy.Resource, left bool, err error) {
	ref := policy.Ref{Kind: policy.KindKeyShard, Name: strconv.FormatUint(uint64(n), 10)}
	shard := &policyv1.KeyShard{Number: n}
	if had, ok := cut.Get(ref); ok {
		if err := proto.Unmarshal(had.Body, shard); err != nil {
			return r, false, fmt.Errorf("shard %d of the keys cannot be read: %w", n, err)
		}
	}
	shard.Keys = slices.DeleteFunc(shard.Keys, func(key *policyv1.Key) bool { return k.gone[key.Id] })
	shard.Keys = append(shard.Keys, k.fresh...)
	if len(shard.Keys) == 0 {
		return policy.Resource{Ref: ref}, false, nil
	}
	return policy.EncodeShard(shard), true, nil
}

// checkLayout checks what a policy does not know: where things run.
func (s *state) checkLayout() error {
	for _, name := range slices.Sorted(maps.Keys(s.layout.endpoints)) {
		if spoke := s.layout.endpoints[name].spoke; !s.hasSpoke(spoke) {
			return invalid(path(KindEndpoint, name)+".spoke", "there is no spoke %q", spoke)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.layout.models)) {
		m := s.layout.models[name]
		first := ""
		for i, t := range m.GetTargets() {
			at := s.layout.spokeOf(t.GetModel())
			if i == 0 {
				first = at
			}
			if at != first {
				return invalid(path(KindModel, name)+".targets", "%s runs in spoke %s and %s in %s; a request never leaves its spoke, so all targets want to be in one",
					m.GetTargets()[0].GetModel(), first, t.GetModel(), at)
			}
		}
	}
	return nil
}

func (s *state) hasSpoke(name string) bool {
	_, ok := s.spokes[name]
	return ok
}

// spokeOf is where a model is served; "": nobody knows.
func (l *layout) spokeOf(model string) string {
	m := l.models[model]
	if targets := m.GetTargets(); len(targets) > 0 {
		m = l.models[targets[0].GetModel()]
	}
	if e := l.endpoints[m.GetEndpoint()]; e != nil {
		return e.spoke
	}
	return ""
}

// load reads the state at a revision from the store.
func load(tx *store.Tx, r Revision, now time.Time) (*state, error) {
	st, err := empty(now)
	if err != nil || r.Number == 0 {
		return st, err
	}
	var list []changed
	nothing := &thing{}
	for _, kind := range Kinds {
		err := tx.Each(string(kind), r.Number, func(v store.Version) error {
			t, err := readStored(v)
			if kind == KindKey && err == nil {
				t = &thing{message: t.message} // there may be a million of them
			}
			list = append(list, changed{kind, v.Name, nothing, t})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	// Compiled as one, not after each other: see policy.CompileKept.
	out, err := st.next(r, list)
	if err != nil {
		return nil, err
	}
	out.snap, err = policy.CompileKept(out.cut, now)
	return out, err
}

// readStored reads what was checked when it was stored.
func readStored(v store.Version) (*thing, error) {
	if v.Body == nil {
		return &thing{}, nil
	}
	t, err := &thing{raw: v.Body}, error(nil)
	if v.Encoded != nil {
		k := &policyv1.Key{}
		t.message, err = k, proto.Unmarshal(v.Encoded, k)
	} else {
		t, err = readThing(Kind(v.Kind), v.Name, v.Body)
	}
	if err != nil {
		return nil, fmt.Errorf("%s of revision %d cannot be read: %w", path(Kind(v.Kind), v.Name), v.Since, err)
	}
	return t, nil
}

// follow is the state that comes of what another process has committed.
func (s *state) follow(tx *store.Tx, r Revision, now time.Time) (*state, error) {
	pairs, err := tx.Between(s.head.Number, r.Number)
	if err != nil {
		return nil, err
	}
	list := make([]changed, 0, len(pairs))
	for _, p := range pairs {
		if bytes.Equal(p.From.Body, p.To.Body) {
			continue
		}
		p.From.Kind, p.From.Name = p.To.Kind, p.To.Name
		before, err := readStored(p.From)
		if err != nil {
			return nil, err
		}
		after, err := readStored(p.To)
		if err != nil {
			return nil, err
		}
		list = append(list, changed{Kind(p.To.Kind), p.To.Name, before, after})
	}
	out, err := s.next(r, list)
	if err != nil {
		return nil, err
	}
	return out, out.compile(s, now)
}

func objectOf(v store.Version) Object {
	return Object{
		Kind: Kind(v.Kind), Name: v.Name, Revision: v.Since, Body: json.RawMessage(v.Body),
		Created: time.Unix(0, v.Created).UTC(), Updated: time.Unix(0, v.Updated).UTC(),
	}
}

func revisionOf(r store.Revision) Revision {
	if r.Number == 0 {
		return Revision{}
	}
	return Revision{
		Number: r.Number, Digest: r.Digest, Message: r.Message, Actor: r.Actor, Role: Role(r.Role), RequestID: r.Request,
		At: time.Unix(0, r.At).UTC(), Changes: r.Changes, RollbackTo: r.RollbackTo,
	}
}
