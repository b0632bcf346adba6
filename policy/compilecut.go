package policy

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// compiler checks a cut against the one before it, and packs its keys.
type compiler struct {
	checker
	prev *Snapshot
	cut  *Cut

	frame  frame
	shards shards
	ids    *idIndex
	count  int
}

// around reads, checks and compiles all but the keys, and says whether it is another than before.
func (c *compiler) around() (changed bool) {
	for i, kind := range Kinds {
		changed = changed || kind != KindKeyShard && c.cut.parts[i] != c.prev.cut.parts[i]
	}
	if !changed && c.prev.set != nil {
		c.index(c.prev.set)
		c.frame = c.prev.frame
		return false
	}
	set := &policyv1.Set{}
	set.Endpoints = read(c, KindEndpoint, "endpoints", func() *policyv1.Endpoint { return &policyv1.Endpoint{} })
	set.Issuers = read(c, KindIssuer, "issuers", func() *policyv1.Issuer { return &policyv1.Issuer{} })
	set.Models = read(c, KindModel, "models", func() *policyv1.Model { return &policyv1.Model{} })
	set.Teams = read(c, KindTeam, "teams", func() *policyv1.Team { return &policyv1.Team{} })
	for _, p := range read(c, KindPlatform, "platform", func() *policyv1.Platform { return &policyv1.Platform{} }) {
		set.Platform = p
	}
	c.set(set, nil)
	if len(c.problems) == 0 {
		c.frame = newFrame(set)
		return true
	}
	c.frame.teams = map[string]*Team{} // nothing comes into force; keys are checked all the same
	for _, t := range set.GetTeams() {
		c.frame.teams[t.GetName()] = &Team{Name: t.GetName()}
	}
	return true
}

// read decodes the resources of a kind. One that cannot be read is a problem.
func read[M proto.Message](c *compiler, kind, list string, fresh func() M) (all []M) {
	for r := range c.cut.Of(kind) {
		m := fresh()
		if err := decode(r, m); err != nil {
			c.add(nil, label(list, r.Name, len(all)), "", -1, "%v", err)
			continue
		}
		all = append(all, m)
	}
	return all
}

// keysOf takes over the shards that are as before, and reads, checks and packs the others. around says that what keys refer to
// may be gone.
func (c *compiler) keysOf(around bool) {
	shards := slices.Clone(c.prev.shards)
	c.shards, c.count = shards, c.prev.count
	changed, removed := c.prev.cut.diff(c.cut, KindKeyShard)
	var gone, added []uint64
	swap := func(number uint32, next *shard) {
		old := shards[number]
		if !old.sameIDs(next) {
			gone, added = append(gone, old.marks(number)...), append(added, next.marks(number)...)
		}
		c.count += next.len() - old.len()
		shards[number] = next
	}
	fresh := map[uint32]bool{}
	for _, r := range removed {
		if n, err := strconv.ParseUint(r.Name, 10, 12); err == nil {
			swap(uint32(n), nil)
			fresh[uint32(n)] = true
		}
	}
	for _, r := range changed {
		if s := c.shard(r); s != nil {
			swap(s.GetNumber(), packShard(s, c.frame.teams))
			fresh[s.GetNumber()] = true
		}
	}
	if around {
		c.again(fresh)
	}
	var crowded []uint64
	c.ids, crowded = c.prev.ids.change(gone, added)
	for _, mark := range crowded {
		c.crowd(mark)
	}
}

// shard reads and checks one; nil: it is of no use.
func (c *compiler) shard(r Resource) *policyv1.KeyShard {
	s := &policyv1.KeyShard{}
	if err := decode(r, s); err != nil {
		c.add(nil, fmt.Sprintf("keys[shard %s]", r.Name), "", -1, "%v", err)
		return nil
	}
	before := len(c.problems)
	c.placed(s)
	c.keys(s.GetKeys())
	if len(c.problems) > before {
		return nil
	}
	return s
}

// again takes the keys of shards that did not change over into the teams as they are now, and checks them where that can make a
// difference.
func (c *compiler) again(but map[uint32]bool) {
	for number, s := range c.shards {
		if s == nil || but[uint32(number)] {
			continue
		}
		look := s.special
		for _, team := range s.teams {
			look = look || c.teams[team.Name] == nil
		}
		if look {
			r, _ := c.cut.Get(Ref{KindKeyShard, strconv.Itoa(number)})
			c.shard(r)
		}
		c.shards[number] = s.of(c.frame.teams)
	}
}

// crowd reports an id that keys in two shards have. Two in one shard are found where it is checked.
func (c *compiler) crowd(mark uint64) {
	number := uint32(mark & shardMask)
	for i := range c.shards[number].keys {
		id := c.shards[number].keys[i].id
		if idMark(id, number) != mark {
			continue
		}
		for _, other := range c.ids.shards(id) {
			if other != number && c.shards[other].named(id) >= 0 {
				c.add(nil, label("keys", id, 0), "id", -1, "%s is taken by another before it", quote(id))
				return
			}
		}
	}
}
