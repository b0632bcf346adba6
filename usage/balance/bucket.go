package balance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"
	"google.golang.org/protobuf/encoding/protodelim"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

const (
	// bucketCount bounds memory: one bucket at a time is read back.
	bucketCount = 256
	// bucketMemory is how many bytes of all buckets are held before they go to disk.
	bucketMemory = 32 << 20
)

// buckets hold records on disk, those of one admission, or of one id, together.
type buckets struct {
	parent, dir string // dir "": nothing had to go to disk yet
	held        [bucketCount]bytes.Buffer
	files       [bucketCount]*os.File
	bytes, most int
}

// add keeps r beside all that have the same name.
func (b *buckets) add(r *usagev1.Record, name string) error {
	n, err := protodelim.MarshalTo(&b.held[xxh3.HashString(name)%bucketCount], r)
	if err != nil {
		return err
	}
	if b.bytes += n; b.bytes < b.most {
		return nil
	}
	return b.spill()
}

// spill moves to disk what is held.
func (b *buckets) spill() error {
	if b.dir == "" {
		dir, err := os.MkdirTemp(b.parent, "spokegate-balance-")
		if err != nil {
			return fmt.Errorf("a folder for temporary files: %w", err)
		}
		b.dir = dir
	}
	for i := range b.held {
		if b.files[i] == nil {
			f, err := os.Create(filepath.Join(b.dir, fmt.Sprint(i)))
			if err != nil {
				return err
			}
			b.files[i] = f
		}
		if _, err := b.held[i].WriteTo(b.files[i]); err != nil {
			return err
		}
	}
	b.bytes = 0
	return nil
}

// each delivers bucket by bucket what was added, in the order of adding.
func (b *buckets) each(f func([]*usagev1.Record) error) error {
	for i := range b.held {
		list, err := b.read(i)
		if err == nil {
			err = f(list)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *buckets) read(i int) (list []*usagev1.Record, err error) {
	if f := b.files[i]; f != nil { // in front of what is held
		if _, err := b.held[i].WriteTo(f); err != nil {
			return nil, err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		if _, err := b.held[i].ReadFrom(f); err != nil {
			return nil, err
		}
	}
	for {
		r := new(usagev1.Record)
		switch err := protodelim.UnmarshalFrom(&b.held[i], r); {
		case errors.Is(err, io.EOF):
			b.held[i] = bytes.Buffer{}
			return list, nil
		case err != nil:
			return nil, err
		}
		list = append(list, r)
	}
}

func (b *buckets) close() error {
	if b.dir == "" {
		return nil
	}
	for _, f := range b.files {
		if f != nil {
			_ = f.Close() // it is removed with all that it holds
		}
	}
	return os.RemoveAll(b.dir)
}

// content is a hash of what a record says, but for its place in a journal.
func content(r *usagev1.Record) uint64 {
	at := markOf(r)
	previous := r.Previous
	r.Source, r.Epoch, r.Sequence, r.Previous = "", 0, 0, ""
	b, _ := marshal.Marshal(r) // fails only for strings that are not UTF-8, which came as JSON or as protobuf
	r.Source, r.Epoch, r.Sequence, r.Previous = at.source, at.epoch, at.sequence, previous
	return xxh3.Hash(b)
}
