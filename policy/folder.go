package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// What the folder of the last good policy holds is written whole or not at all, and belongs to the folder's owner alone.

// header is the first line of a file: its format, and the SHA-256 of what follows.
func header(format string, body []byte) []byte {
	sum := sha256.Sum256(body)
	return []byte(format + hex.EncodeToString(sum[:]) + "\n")
}

// halfPrefix begins the name of a file that is not whole yet.
const halfPrefix = ".new-"

// replace writes a whole file under its name, or leaves what was there. kind begins the file's name while it is half.
func replace(dir, kind, name string, data []byte) (err error) {
	tmp, err := os.CreateTemp(dir, halfPrefix+kind)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(data)
	if err == nil {
		err = giveToOwner(dir, tmp)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

// giveToOwner lets the folder's owner read what root wrote: root types a command, and the door runs as somebody else.
func giveToOwner(dir string, f *os.File) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return nil
	}
	return f.Chown(int(owner.Uid), int(owner.Gid))
}

// syncDir makes a rename survive a loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// sweep removes what a crash left half written. What cannot be removed does no harm.
func sweep(dir, kind string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), halfPrefix+kind) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// lockDir waits until no other process holds the folder. A lock goes with the process that held it.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = d.Close() }, nil
}
