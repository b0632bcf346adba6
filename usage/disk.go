package usage

import (
	"io"
	"os"
)

// disk is what the journal needs of a file system. Each step may fail without having happened, or fail and have happened:
// the journal trusts a byte only after a Sync that returned nil.
type disk interface {
	// Create makes a new file, and fails if the name is taken.
	Create(path string) (file, error)
	// SyncDir makes the names in a folder last.
	SyncDir(dir string) error
	Remove(path string) error
	// Segments lists the segments of a folder, in order.
	Segments(dir string) ([]segment, error)
}

type file interface {
	io.Writer
	Sync() error
	Close() error
}

// osDisk is the real one.
type osDisk struct{}

func (osDisk) Create(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err // not f: a nil *os.File in an interface is not nil
	}
	return f, nil
}

func (osDisk) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (osDisk) Remove(path string) error               { return os.Remove(path) }
func (osDisk) Segments(dir string) ([]segment, error) { return segments(dir) }
