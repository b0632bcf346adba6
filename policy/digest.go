package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// Shards is how many shards keys are spread over: by the first 12 bits of their hash.
const Shards = 4096

// shardOf is the number of the shard that a key belongs to; 0 for a key whose hash is too short to say.
func shardOf(k *policyv1.Key) uint32 {
	h := k.GetSha256()
	if len(h) < 2 {
		return 0
	}
	return uint32(h[0])<<4 | uint32(h[1])>>4
}

// KeyShards spreads keys over their shards. Shards are in order of number, without empty ones; keys are in order of hash,
// so that the order of a file makes no difference.
func KeyShards(keys []*policyv1.Key) []*policyv1.KeyShard {
	keys = slices.Clone(keys)
	slices.SortStableFunc(keys, compareKeys)
	var out []*policyv1.KeyShard
	for _, k := range keys {
		n := shardOf(k)
		if len(out) == 0 || out[len(out)-1].Number != n {
			out = append(out, &policyv1.KeyShard{Number: n})
		}
		last := out[len(out)-1]
		last.Keys = append(last.Keys, k)
	}
	return out
}

func compareKeys(a, b *policyv1.Key) int {
	return cmp.Or(cmp.Compare(shardOf(a), shardOf(b)), bytes.Compare(a.GetSha256(), b.GetSha256()))
}

// Keys are all keys of a set, shard after shard.
func Keys(set *policyv1.Set) []*policyv1.Key {
	var out []*policyv1.Key
	for _, s := range set.GetKeys() {
		out = append(out, s.GetKeys()...)
	}
	return out
}

// Digest is the SHA-256 over the deterministic encoding of a set's resources in order of (type, name). The revision is
// not part of it, and the order of resources, and of keys within their shard, makes no difference.
func Digest(set *policyv1.Set) []byte {
	d := digest{sha256.New()}
	each(d, "Endpoint", set.GetEndpoints(), (*policyv1.Endpoint).GetName)
	each(d, "Issuer", set.GetIssuers(), (*policyv1.Issuer).GetName)
	for _, s := range sortedBy(set.GetKeys(), func(s *policyv1.KeyShard) string { return fmt.Sprintf("%010d", s.GetNumber()) }) {
		keys := slices.Clone(s.GetKeys())
		slices.SortStableFunc(keys, compareKeys)
		d.resource("KeyShard", fmt.Sprint(s.GetNumber()), &policyv1.KeyShard{Number: s.GetNumber(), Keys: keys})
	}
	each(d, "Model", set.GetModels(), (*policyv1.Model).GetName)
	if set.GetPlatform() != nil {
		d.resource("Platform", "", set.GetPlatform())
	}
	each(d, "Team", set.GetTeams(), (*policyv1.Team).GetName)
	return d.Sum(nil)
}

type digest struct{ hash.Hash }

func each[M proto.Message](d digest, kind string, resources []M, name func(M) string) {
	for _, m := range sortedBy(resources, name) {
		d.resource(kind, name(m), m)
	}
}

func sortedBy[M any](list []M, name func(M) string) []M {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b M) int { return cmp.Compare(name(a), name(b)) })
	return list
}

// resource adds one resource; lengths keep apart what stands beside it.
func (d digest) resource(kind, name string, m proto.Message) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil { // a string that is not UTF-8: the checks refuse it, and until then it has a digest of its own
		body = []byte(err.Error())
	}
	for _, part := range [][]byte{[]byte(kind), []byte(name), body} {
		_ = binary.Write(d, binary.BigEndian, uint64(len(part)))
		_, _ = d.Write(part)
	}
}
