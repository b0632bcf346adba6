package policy

import (
	"bytes"
	"cmp"
	"slices"

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

// Digest is that of a set's resources: see [Cut.Digest]. The revision is not part of it.
func Digest(set *policyv1.Set) []byte { return NewCut(set).Digest() }
