package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	folderPattern = "spokegate-engine-*"
	// maxFolder leaves room for the socket's name in a Unix address (108 bytes).
	maxFolder = 100
	// staleAfter keeps a folder safe between its making and its locking.
	staleAfter = time.Minute
)

// folder is a fresh folder that only this user enters. It is locked for as long as the shim lives, so that what a killed
// shim left behind is known by its free lock.
type folder struct {
	path string
	lock *os.File
}

func newFolder(now time.Time) (*folder, error) {
	sweep(now)
	path, err := os.MkdirTemp("", folderPattern) // 0700
	if err != nil {
		return nil, err
	}
	f := &folder{path: path}
	if len(path) > maxFolder {
		f.remove()
		return nil, fmt.Errorf("the path %s is too long for a socket: set TMPDIR to a shorter one", path)
	}
	if f.lock, err = lockFolder(path); err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

func (f *folder) remove() {
	_ = os.RemoveAll(f.path)
	if f.lock != nil {
		f.lock.Close()
	}
}

func lockFolder(path string) (*os.File, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// sweep removes the folders of shims that are dead. Those of other users cannot be opened, and stay.
func sweep(now time.Time) {
	paths, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPattern)) // the pattern is well-formed
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < staleAfter {
			continue
		}
		if lock, err := lockFolder(path); err == nil {
			(&folder{path, lock}).remove()
		}
	}
}
