package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/policy"
)

const manyKeys = 1_000_000

// keyHash is the hash of one of many keys.
func keyHash(i int) identity.Hash {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(i))
	return sha256.Sum256(b[:])
}

// policyOf is a policy of n keys in 1,000 teams.
func policyOf(n int) *policy.Cut {
	set := &policyv1.Set{
		Revision:  &policyv1.Revision{Number: 1},
		Endpoints: []*policyv1.Endpoint{{Name: "e"}}, Models: []*policyv1.Model{{Name: "m", Endpoint: "e"}},
	}
	for i := range 1000 {
		set.Teams = append(set.Teams, &policyv1.Team{Name: fmt.Sprint("team-", i), Models: []string{"*"}})
	}
	keys := make([]*policyv1.Key, n)
	for i := range keys {
		hash := keyHash(i)
		keys[i] = &policyv1.Key{Id: fmt.Sprint("key-", i), Team: fmt.Sprint("team-", i%1000), Sha256: hash[:]}
	}
	set.Keys = policy.KeyShards(keys)
	return policy.NewCut(set)
}

// revokeOne is the cut that follows, with one key of a shard revoked.
func revokeOne(c *policy.Cut, shard int) (*policy.Cut, error) {
	r, ok := c.Get(policy.Ref{Kind: policy.KindKeyShard, Name: fmt.Sprint(shard)})
	s := &policyv1.KeyShard{}
	if err := proto.Unmarshal(r.Body, s); err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("shard %d: %v", shard, ok))
	}
	k := s.Keys[len(s.Keys)/2]
	k.Revoked = !k.Revoked
	return c.Next(&policyv1.Revision{Number: c.Revision().GetNumber() + 1}, []policy.Resource{policy.EncodeShard(s)}, nil), nil
}

// lookUp is a door's policy with a million keys: finding one, beside a bare map of the same keys; what they take; and taking up that
// one is revoked, beside compiling all.
func lookUp(ctx context.Context, o options) ([]figure, error) {
	progress("policy: a million keys")
	cut := policyOf(manyKeys)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	snap, err := policy.CompileCut(nil, cut, start)
	whole := time.Since(start)
	if err != nil {
		return nil, err
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	encoded := 0
	for r := range cut.Of(policy.KindKeyShard) {
		encoded += len(r.Body)
	}
	compiled := float64(after.HeapAlloc) - float64(before.HeapAlloc)
	figures := []figure{
		alone("policy.bytes_per_key", "B", "compiled, and encoded as it is kept", []float64{(compiled + float64(encoded)) / manyKeys}),
	}
	bare := map[identity.Hash]*policy.Key{}
	hashes := make([]identity.Hash, 1<<16)
	for i := range manyKeys {
		bare[keyHash(i)] = &policy.Key{ID: fmt.Sprint("key-", i)}
	}
	for i := range hashes {
		hashes[i] = keyHash(i * 15)
	}
	i := 0
	next := func() identity.Hash { i++; return hashes[i&(len(hashes)-1)] }
	found, err := micro{name: "policy.lookup", unit: "ns", times: inNanos, note: "a Go map of the same keys",
		ours: func() error {
			if snap.Key(next()) == nil {
				return errors.New("a key is not found")
			}
			return nil
		},
		against: func() { runtime.KeepAlive(bare[next()]) }}.measure(ctx, o.rounds)
	if err != nil {
		return nil, err
	}
	bare = nil
	shard := 0
	revoked, err := micro{name: "policy.revoke", unit: "µs", times: inMicros, ours: func() error {
		shard = (shard + 1) % policy.Shards
		cut, err := revokeOne(snap.Cut(), shard)
		if err == nil {
			snap, err = policy.CompileCut(snap, cut, start)
		}
		return err
	}}.measure(ctx, o.rounds)
	progress("policy: compiled whole in %v", whole.Round(time.Millisecond))
	return append(append(figures, found...), revoked...), err
}
