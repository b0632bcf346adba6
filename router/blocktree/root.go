package blocktree

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// Root is what the first block of a prompt carries in its root: of the adapter's name and the cache salt, empty where there is
// none. seed is the spoke's. Workers make the same of what their engines tell (see worker/kv).
func Root(seed uint64, lora, salt string) uint64 {
	if lora == "" && salt == "" {
		return 0
	}
	var keys []byte
	for _, k := range []struct {
		tag  byte
		name string
	}{{'l', lora}, {'s', salt}} {
		if k.name != "" {
			keys = binary.LittleEndian.AppendUint32(append(keys, k.tag), uint32(len(k.name)))
			keys = append(keys, k.name...)
		}
	}
	return max(xxh3.HashSeed(keys, seed), 1)
}
