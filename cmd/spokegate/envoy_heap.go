package main

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// heapWithin is the heap in bytes at which Envoy is to shed where this process and it may have so much memory: a tenth is left
// for what is no heap, and for this process. Beyond its limit a container is killed, with all its streams. 0: there is no limit.
func heapWithin(limit uint64) uint64 { return limit / 10 * 9 }

// ownMemoryLimit is what the control group of this process may have in bytes; 0: all.
func ownMemoryLimit() uint64 {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	return memoryLimit(os.DirFS("/"), string(groups))
}

// memoryLimit is the least limit of the groups (as /proc/self/cgroup tells them) and of those above them; 0: there is none.
func memoryLimit(root fs.FS, groups string) (least uint64) {
	const mount = "sys/fs/cgroup"
	take := func(file string) {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return // the root has none, and a group of another namespace is not to be seen
		}
		// The first version writes no limit as nearly 2^63, the second as "max".
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && n < 1<<62 && (least == 0 || n < least) {
			least = n
		}
	}
	for line := range strings.Lines(groups) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		switch {
		case part[1] == "": // version 2
			for at := path.Join("/", part[2]); ; at = path.Dir(at) {
				take(path.Join(mount, at, "memory.max"))
				if at == "/" {
					break
				}
			}
		case strings.Contains(","+part[1]+",", ",memory,"):
			take(path.Join(mount, "memory", part[2], "memory.limit_in_bytes"))
			take(path.Join(mount, "memory", "memory.limit_in_bytes")) // in a container its own group is mounted there
		}
	}
	return least
}
