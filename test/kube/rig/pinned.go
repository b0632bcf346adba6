package rig

import (
	"runtime"
	"sync"
)

var (
	pinned sync.Once
	starts = make(chan func())
)

// pinnedLoop is the one goroutine that starts programs which are to die with us; its thread is never given back.
func pinnedLoop() {
	runtime.LockOSThread()
	for f := range starts {
		f()
	}
}
