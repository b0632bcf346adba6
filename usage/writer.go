package usage

import (
	"io"
	"path/filepath"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Bounds of one batch: what is written and fsynced together, and written again after a failure.
const (
	batchRecords = 4096
	batchBytes   = 1 << 20
)

// writer puts numbered records into segments. It is sequential: one goroutine uses it.
//
// It trusts nothing but a Sync that returned nil. After any failure the tail of the segment is unknown, so the segment is
// left alone for ever and the same batch, with the same bytes, goes to a new one.
type writer struct {
	disk         disk
	dir, source  string
	epoch        uint64
	segmentBytes int64
	maxBytes     int64

	chain bool   // each record names the digest of the one before
	last  Digest // of the record before the next one

	next   uint64 // sequence of the next record
	number int    // of the segment last tried
	file   file   // nil: the next batch opens a segment
	path   string
	synced int64 // bytes of the open segment known to be on disk
	wrote  int   // bytes of the present batch in the open segment
	total  int64 // bytes of the source's folder, all epochs
}

// batch is a run of encoded records.
type batch struct {
	lines []byte
	since time.Time      // when the first of them was taken
	kinds map[string]int // number of records by kind
	n     int
	own   int // of those, the journal's own checkpoints: nobody has appended them
}

// add numbers r and encodes it. It returns a reason, and takes no number, if r has to be left out.
func (w *writer) add(b *batch, r *usagev1.Record) (lost string) {
	r.Source, r.Epoch, r.Sequence, r.Previous = w.source, w.epoch, w.next, ""
	if w.chain {
		r.Previous = w.last.String()
	}
	start := len(b.lines)
	b.lines = appendLine(b.lines, r)
	switch {
	case len(b.lines)-start > MaxLine:
		lost = lostTooLarge
	case w.total+int64(len(b.lines)-w.wrote) > w.maxBytes:
		lost = lostSpoolFull
	}
	if lost != "" {
		b.lines = b.lines[:start]
		return lost
	}
	if w.chain {
		w.last = DigestOf(b.lines[start+sumLen : len(b.lines)-1])
	}
	w.next++
	b.n++
	if r.Kind == KindCheckpoint {
		b.own++
	}
	b.kinds[r.Kind]++
	return ""
}

func (b *batch) full() bool { return b.n >= batchRecords || len(b.lines) >= batchBytes }

func (b *batch) reset() {
	b.lines, b.n, b.own = b.lines[:0], 0, 0
	clear(b.kinds)
}

// write hands to the system what it has not got of b, so that it outlives this process. After an error b must be committed.
func (w *writer) write(b *batch) error {
	if w.file == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	rest := b.lines[w.wrote:]
	if len(rest) == 0 {
		return nil
	}
	n, err := w.file.Write(rest)
	w.total += int64(n)
	if err == nil && n < len(rest) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.abandon()
		return err
	}
	w.wrote += n
	return nil
}

// commit makes one attempt to bring b to disk. After an error the caller commits the same b again, or never anything more.
func (w *writer) commit(b *batch) error {
	if err := w.write(b); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		w.abandon()
		return err
	}
	w.synced, w.wrote = w.synced+int64(w.wrote), 0
	if w.synced >= w.segmentBytes {
		w.close()
	}
	return nil
}

// open starts the next segment. The name lasts before anything in it counts.
func (w *writer) open() error {
	w.number++
	w.path = filepath.Join(w.dir, segmentName(w.epoch, w.number))
	f, err := w.disk.Create(w.path)
	if err != nil {
		return err
	}
	w.file, w.synced, w.wrote = f, 0, 0
	if err := w.disk.SyncDir(w.dir); err != nil {
		w.abandon()
		return err
	}
	return nil
}

// abandon gives up a segment whose tail is unknown. One that never held anything acknowledged is removed, so that a disk
// that fails for hours does not leave a file for each attempt; should that fail too, the file harms nobody.
func (w *writer) abandon() {
	synced := w.synced
	w.close()
	if synced == 0 && w.disk.Remove(w.path) == nil {
		w.measure()
	}
}

// close ends the segment. What is in it and counts was synced, so an error of closing says nothing new.
func (w *writer) close() {
	if w.file != nil {
		_ = w.file.Close()
	}
	w.file, w.synced, w.wrote = nil, 0, 0
}

// measure finds out again how many bytes the source has on disk: others remove segments that were shipped.
func (w *writer) measure() {
	list, err := w.disk.Segments(w.dir)
	if err != nil {
		return // the last known number is the better one
	}
	w.total = 0
	for _, s := range list {
		w.total += s.size
	}
}
