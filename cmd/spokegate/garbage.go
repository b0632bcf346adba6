package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much garbage may lie about before it is collected, in bytes and in percent of what is alive. A few megabytes live in a
// quiet process, and collecting at twice of that, which is Go's own way, costs a tenth of the CPU. Ten thousand streams are
// 130 MB, and five times of that would be memory that nobody has asked for.
const (
	garbageBytes = 64 << 20
	garbageLeast = 50
	garbageMost  = 400
)

// garbagePercent is GOGC for a process in which so many bytes live, stacks included.
func garbagePercent(live uint64) int {
	return int(max(garbageLeast, min(garbageMost, garbageBytes*100/max(live, 1))))
}

// boundGarbage sets GOGC anew after each collection, where the environment does not name it.
func boundGarbage() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(garbageMost)
	sizes := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}}
	now := garbageMost
	afterCollections(func() {
		metrics.Read(sizes)
		if want := garbagePercent(sizes[0].Value.Uint64() + sizes[1].Value.Uint64()); want != now {
			now = want
			debug.SetGCPercent(want)
		}
	})
}

// afterCollections calls f after each collection of garbage: an object that nobody holds is found by every one of them.
func afterCollections(f func()) {
	runtime.SetFinalizer(&struct{ again func() }{f}, func(*struct{ again func() }) {
		f()
		afterCollections(f)
	})
}
