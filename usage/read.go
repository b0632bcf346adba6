package usage

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Read delivers all records of all sources under dir, folder by folder, each in the order of its epochs and sequences. An
// error of f ends it and is returned as it is. What is damaged or missing is passed over and told in a *DamageError at the
// end. A segment's unfinished last line is no damage, see Summary.Torn: nothing in it was ever acknowledged.
func Read(dir string, f func(*usagev1.Record) error) (Summary, error) {
	var s Summary
	folders, err := sourceFolders(dir)
	if err != nil {
		return s, err
	}
	for _, folder := range folders {
		r := sourceReader{dir: folder, summary: &s, emit: f}
		if err := r.pass(true); err != nil {
			return s, err
		}
	}
	return s, s.err()
}

// sourceFolders are the folders under dir, itself included, that hold segments.
func sourceFolders(dir string) ([]string, error) {
	var folders []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			if path != dir && errors.Is(err, fs.ErrNotExist) {
				return nil // removed meanwhile
			}
			return err
		}
		if _, _, ok := segmentOf(e.Name()); ok && !e.IsDir() {
			folders = append(folders, filepath.Dir(path))
		}
		return nil
	})
	slices.Sort(folders)
	return slices.Compact(folders), err
}

// tailEvery is how often Tail looks for more.
const tailEvery = 100 * time.Millisecond

// Tail delivers all records under dir, which need not exist yet, and then each as it comes, until ctx is done: also what is
// on its way to the disk, a moment before it is synced. It returns the error of f, or nil when ctx is done, or then a
// *DamageError that tells what it had to pass over.
func Tail(ctx context.Context, dir string, f func(*usagev1.Record) error) error {
	t := tailer{dir: dir, emit: f, readers: map[string]*sourceReader{}}
	return t.run(ctx, tailEvery)
}

// tailer is the state of one Tail.
type tailer struct {
	dir     string
	emit    func(*usagev1.Record) error
	readers map[string]*sourceReader
	summary Summary
}

// run makes a pass now and after each interval.
func (t *tailer) run(ctx context.Context, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := t.pass(); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return t.summary.err()
		}
	}
}

func (t *tailer) pass() error {
	folders, err := sourceFolders(t.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, folder := range folders {
		r := t.readers[folder]
		if r == nil {
			r = &sourceReader{dir: folder, summary: &t.summary, emit: t.emit}
			t.readers[folder] = r
		}
		if err := r.pass(false); err != nil {
			return err
		}
	}
	return nil
}
