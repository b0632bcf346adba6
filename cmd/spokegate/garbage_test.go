package main

import (
	"runtime"
	"testing"
	"time"
)

func TestGarbagePercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 5 << 20: 400, 16 << 20: 400, 32 << 20: 200, 64 << 20: 100, 128 << 20: 50, 10 << 30: 50} {
		if got := garbagePercent(live); got != want {
			t.Errorf("%d MB alive: %d %%, want %d", live>>20, got, want)
		}
	}
}

func TestAfterCollections(t *testing.T) {
	called := make(chan struct{}, 1000)
	afterCollections(func() {
		select {
		case called <- struct{}{}:
		default:
		}
	})
	for range 2 { // also after it has been called once
		runtime.GC()
		select {
		case <-called:
		case <-time.After(3 * time.Minute):
			t.Fatal("not called after a collection")
		}
	}
}
