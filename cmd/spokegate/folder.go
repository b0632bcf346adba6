package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// holdRun makes DIR/run, and takes its lock for whoever starts an Envoy there: two would overwrite each other's files. The kernel
// gives the lock back when this process ends, however it does.
func holdRun(dir string) (*os.File, error) {
	run := filepath.Join(dir, "run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(run, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("another `spokegate up` or `spokegate envoy run` runs in %s: stop it, or choose another folder with -dir", dir)
	}
	return lock, nil
}
