package main

import (
	"testing"
	"testing/fstest"
)

// TestMemoryLimit: the least limit of a group and those above it holds, in both versions of control groups.
func TestMemoryLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	for name, c := range map[string]struct {
		root   fstest.MapFS
		groups string
		want   uint64
	}{
		"a container's":      {fstest.MapFS{"sys/fs/cgroup/memory.max": file("4294967296")}, "0::/\n", 4 << 30},
		"a container's, v1":  {fstest.MapFS{"sys/fs/cgroup/memory/memory.limit_in_bytes": file("2147483648")}, "5:cpu,memory:/kubepods/pod1\n", 2 << 30},
		"the slice's":        {fstest.MapFS{"sys/fs/cgroup/a/memory.max": file("1073741824"), "sys/fs/cgroup/a/b/memory.max": file("max")}, "0::/a/b\n", 1 << 30},
		"none":               {fstest.MapFS{"sys/fs/cgroup/memory.max": file("max")}, "0::/\n", 0},
		"none, v1":           {fstest.MapFS{"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712")}, "5:memory:/\n", 0},
		"of no other things": {fstest.MapFS{"sys/fs/cgroup/pids/memory.limit_in_bytes": file("1")}, "4:pids:/\n", 0},
		"no control groups":  {nil, "", 0},
	} {
		if got := memoryLimit(c.root, c.groups); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if got := heapWithin(4 << 30); got != 3865470561 {
		t.Errorf("within 4 GiB Envoy sheds at %d", got)
	}
	if got := heapWithin(0); got != 0 {
		t.Errorf("without a limit Envoy sheds at %d", got)
	}
}
