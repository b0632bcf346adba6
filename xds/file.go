package xds

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// File is a source that watches one policy file by looking at it: that works on every file system, for editors that write
// in place and for those that rename. It is read when its time, size or identity moved, and until they have stood a while.
type File struct {
	// Every is the time between two looks; 250 ms if NewFile made it. Set it before Run.
	Every time.Duration

	path  string
	log   *slog.Logger
	watch watch
	known os.FileInfo // what the last look read, if nothing can have changed under the same time since; nil: read again
}

// coarse is the coarsest step of a file system's times: within it, a file may change and its time not.
const coarse = 2 * time.Second

// lookEvery is the time between two looks at a file.
const lookEvery = 250 * time.Millisecond

// NewFile watches the file at path. It need not exist: an absent file is refused like a bad one.
func NewFile(path string, log *slog.Logger) *File {
	return &File{Every: lookEvery, path: path, log: log}
}

// Run offers the file's content now and whenever it changed. See [Source].
func (f *File) Run(ctx context.Context, _ *policy.Cut, offer func(Candidate)) error {
	tick := time.NewTicker(f.Every)
	defer tick.Stop()
	for {
		if info, err := os.Stat(f.path); f.watch.wait > 0 || f.moved(info, err) {
			if v := f.look(info, err); f.watch.due(v) {
				offer(f.candidate(v))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Ack notes that the last offer is in force.
func (f *File) Ack(revision uint64) {
	f.log.Debug("policy file accepted", "path", f.path, "revision", revision)
}

// Nack notes that the last offer was refused. What it holds is offered again when it changed, or, if again, after a while.
func (f *File) Nack(_ string, again bool) {
	if again {
		f.watch.retry()
	}
}

// candidate reads what a view shows as a policy.
func (f *File) candidate(v view) Candidate {
	c := Candidate{From: "file " + f.path, Err: v.err}
	if c.Err == nil {
		set, err := policy.Parse(f.path, v.content)
		if c.Err = err; err == nil {
			c.Cut = policy.NewCut(set)
		}
	}
	return c
}

// moved says whether the file may hold something else than at the last look.
func (f *File) moved(info os.FileInfo, err error) bool {
	return err != nil || f.known == nil || !os.SameFile(info, f.known) ||
		!info.ModTime().Equal(f.known.ModTime()) || info.Size() != f.known.Size()
}

// look reads the file. How long ago it was written counts from before it was read.
func (f *File) look(info os.FileInfo, err error) view {
	f.known = nil
	if err != nil {
		return view{err: err}
	}
	if !info.Mode().IsRegular() {
		return view{err: fmt.Errorf("%s: not a regular file", f.path)}
	}
	age := time.Since(info.ModTime())
	file, err := os.Open(f.path)
	if err != nil {
		return view{err: err}
	}
	content, err := io.ReadAll(io.LimitReader(file, policy.MaxFile+1)) // one more, so that Parse sees that it is too large
	if err := errors.Join(err, file.Close()); err != nil {
		return view{err: err}
	}
	if age > max(f.Every, coarse) {
		f.known = info
	}
	return view{content: content, still: age > f.Every}
}

// view is one look at a file.
type view struct {
	content []byte
	err     error
	still   bool // not written to for a while
}

func (v view) sum() [sha256.Size]byte {
	if v.err != nil {
		return sha256.Sum256([]byte("error " + v.err.Error()))
	}
	return sha256.Sum256(append([]byte("file "), v.content...))
}

// retryAfter is how many looks go by before content is offered again that was refused for no fault of its own.
const retryAfter = 20

// watch decides which views are offered: each new content once, when it has stopped changing. It stopped when two looks
// agree or the file was last written longer ago than a look: a file that is being written in pieces would else take
// effect by halves.
type watch struct {
	offered [sha256.Size]byte
	last    [sha256.Size]byte
	wait    int // looks until offered is forgotten; 0: it is not
}

func (w *watch) due(v view) bool {
	if w.wait > 0 {
		if w.wait--; w.wait == 0 {
			w.offered = [sha256.Size]byte{}
		}
	}
	sum := v.sum()
	settled := v.still || sum == w.last
	w.last = sum
	if sum == w.offered || !settled {
		return false
	}
	w.offered, w.wait = sum, 0
	return true
}

func (w *watch) retry() { w.wait = retryAfter }
