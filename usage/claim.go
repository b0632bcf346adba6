package usage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// claim makes the folder of a source if need be, and locks it for this process. The lock is on the folder itself, so that
// it needs no write, and the kernel takes it back when the process dies.
func claim(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return lock(os.Open(dir))
}

// claimShipping is claim for the one who ships the folder, beside the one who writes it.
func claimShipping(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return lock(os.OpenFile(filepath.Join(dir, "shipped.lock"), os.O_RDWR|os.O_CREATE, 0o600))
}

func lock(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s is in use by another process", f.Name())
	}
	return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
}
