package balance

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spokegate/spokegate/usage"
)

// Spools are the journals on local disks.
type Spools struct {
	dirs  []string
	size  int64 // bytes
	whole bool
}

// OpenSpools finds the journals under these folders.
func OpenSpools(dirs ...string) (*Spools, error) {
	s := &Spools{dirs: dirs, whole: true}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			if e.Name() == shippedFile {
				s.whole = false // what was shipped may have been removed
			}
			if info, err := e.Info(); err == nil && filepath.Ext(path) == ".log" {
				s.size += info.Size()
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// shippedFile is in a source's folder whose records are shipped: see package usage.
const shippedFile = "shipped.json"

// Traits of what is on the disk: all that its sources had.
func (s *Spools) Traits() Traits { return Traits{Whole: s.whole, Complete: true} }

// Read counts its progress in bytes.
func (s *Spools) Read(ctx context.Context, add func(Item) error, progress func(done, total int64)) error {
	var file string
	var before, at int64 // bytes of files that were read, and of the one being read
	for _, dir := range s.dirs {
		err := usage.Scan(dir, func(l usage.Line) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if l.File != file {
				file, before = l.File, before+at
			}
			if at = l.Offset; progress != nil {
				progress(before+at, s.size)
			}
			if l.Err == nil && usage.OutsideBalance(l.Record.Source) {
				return nil
			}
			return add(Item{Record: l.Record, Body: l.Body, Err: l.Err, Place: fmt.Sprintf("%s, byte %d", l.File, l.Offset), Lane: filepath.Dir(l.File)})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
