package usage

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// claim makes the folder of a source if need be, and locks it for this process. The lock is on the folder itself, so that
// it needs no write, and the kernel takes it back when the process dies.
func claim(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return d, nil
	}
	d.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s is in use by another process", dir)
	}
	return nil, fmt.Errorf("lock %s: %w", dir, err)
}
