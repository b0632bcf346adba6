package policy

import (
	"slices"
	"sort"

	"github.com/zeebo/xxh3"
)

// idIndex leads from a key's id to its shard, in 8 bytes a key: the upper bits of the id's hash, and the number of the shard. The
// buckets are by the top bits of the hash. It is immutable; its successors share the buckets that are equal.
type idIndex [Shards][]uint64

const shardMask = Shards - 1

func idMark(id string, shard uint32) uint64 {
	return xxh3.HashString(id)&^uint64(shardMask) | uint64(shard)
}

func bucketOf(mark uint64) uint32 { return uint32(mark >> 52) }

// shards are those that may have a key with this id: one at most, but for hashes that are equal by chance.
func (x *idIndex) shards(id string) (numbers []uint32) {
	if x == nil {
		return nil
	}
	mark := idMark(id, 0)
	b := x[bucketOf(mark)]
	for i := sort.Search(len(b), func(i int) bool { return b[i] >= mark }); i < len(b) && b[i]&^shardMask == mark; i++ {
		numbers = append(numbers, uint32(b[i]&shardMask))
	}
	return numbers
}

// change is the successor without the marks of some keys and with those of others. crowded are marks which another has too, but
// for the shard: ids that are there twice, or differ and have equal hashes.
func (x *idIndex) change(removed, added []uint64) (next *idIndex, crowded []uint64) {
	gone, fresh := map[uint32][]uint64{}, map[uint32][]uint64{}
	for _, m := range removed {
		gone[bucketOf(m)] = append(gone[bucketOf(m)], m)
	}
	for _, m := range added {
		fresh[bucketOf(m)] = append(fresh[bucketOf(m)], m)
	}
	next = new(idIndex)
	*next = *x
	for bucket, marks := range gone {
		next[bucket] = without(next[bucket], marks)
	}
	for bucket, marks := range fresh {
		all := make([]uint64, 0, len(next[bucket])+len(marks))
		all = append(append(all, next[bucket]...), marks...)
		slices.Sort(all)
		next[bucket] = all
		for i, m := range all {
			if i > 0 && all[i-1]&^shardMask == m&^shardMask {
				crowded = append(crowded, m)
			}
		}
	}
	slices.Sort(crowded)
	return next, crowded
}

// without takes each mark out once.
func without(from, marks []uint64) []uint64 {
	slices.Sort(marks)
	out := make([]uint64, 0, max(len(from)-len(marks), 0))
	for _, m := range from {
		if len(marks) > 0 && marks[0] == m {
			marks = marks[1:]
			continue
		}
		out = append(out, m)
	}
	return out
}

// marks are those of all ids in a shard.
func (s *shard) marks(number uint32) []uint64 {
	if s == nil {
		return nil
	}
	out := make([]uint64, len(s.keys))
	for i := range s.keys {
		out[i] = idMark(s.keys[i].id, number)
	}
	return out
}
