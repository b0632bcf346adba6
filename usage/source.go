package usage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// sourceReader reads the folder of one source, again and again from where it was.
//
// A segment is done with when a later one exists: the writer begins the next only after its last write to the one before.
type sourceReader struct {
	dir     string
	summary *Summary
	emit    func(*usagev1.Record) error

	at     segment // the segment being read; zero: none yet
	offset int64   // in it, after the last whole line
	log    *epochLog
	source string // of the epoch being read
}

// pass reads what there is. last says that nobody will come back: the newest segment's tail is judged too.
func (r *sourceReader) pass(last bool) error {
	list, err := segments(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for i, s := range list {
		if s.before(r.at) {
			continue
		}
		if r.at.before(s) {
			r.turn(s)
		}
		if err := r.read(s, last || i < len(list)-1); err != nil {
			return err
		}
	}
	if last {
		r.endEpoch()
	}
	return nil
}

// turn goes on to another segment.
func (r *sourceReader) turn(s segment) {
	if s.epoch != r.at.epoch {
		r.endEpoch()
	}
	if r.log == nil {
		r.log = new(epochLog)
	}
	r.at, r.offset = s, 0
}

// endEpoch sums up the epoch that was being read.
func (r *sourceReader) endEpoch() {
	e := r.log
	r.log = nil
	if e == nil || e.next == 0 {
		return
	}
	for _, m := range e.missing {
		r.summary.problem(r.dir, -1, "epoch %d: %s", r.at.epoch, m)
	}
	r.summary.Epochs = append(r.summary.Epochs, Epoch{r.source, r.at.epoch, e.first, e.next - 1, e.records})
}

// read takes the lines of s from the offset on. finished: no more will be written to it.
func (r *sourceReader) read(s segment, finished bool) error {
	if s.size <= r.offset {
		return nil
	}
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(r.offset, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(f, MaxLine)
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case err == nil:
			if err := r.line(s, line[:len(line)-1]); err != nil {
				return err
			}
			r.offset += int64(len(line))
		case errors.Is(err, io.EOF):
			if len(line) > 0 && finished {
				r.summary.Torn++
				r.offset += int64(len(line))
			}
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			if done, err := r.skip(s, in, finished); done || err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// skip passes over a line that is too long to be one. done: it has no end yet.
func (r *sourceReader) skip(s segment, in *bufio.Reader, finished bool) (done bool, err error) {
	length := int64(MaxLine)
	for {
		part, err := in.ReadSlice('\n')
		length += int64(len(part))
		switch {
		case err == nil:
			r.summary.problem(s.path, r.offset, "a line of %d bytes, at most %d are expected", length, MaxLine)
			r.offset += length
			return false, nil
		case errors.Is(err, io.EOF):
			if finished {
				r.summary.Torn++
				r.offset += length
			}
			return true, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return true, err
		}
	}
}

// line judges one whole line and delivers its record.
func (r *sourceReader) line(s segment, line []byte) error {
	rec, sum, err := parseLine(line)
	if err != nil {
		r.summary.problem(s.path, r.offset, "%v", err)
		return nil
	}
	if err := belongs(rec, s); err != nil {
		r.summary.problem(s.path, r.offset, "%v", err)
		return nil
	}
	switch r.log.see(rec.Sequence, sum) {
	case repeated:
		r.summary.Repeated++
		return nil
	case clashing:
		r.summary.problem(s.path, r.offset, "sequence %d is there already, with another content", rec.Sequence)
		return nil
	}
	r.source = rec.Source
	r.summary.Records++
	return r.emit(rec)
}

// belongs tells why a record cannot be of this segment.
func belongs(r *usagev1.Record, s segment) error {
	folder, err := folderOf(r.Source)
	if err != nil || folder != filepath.Base(filepath.Dir(s.path)) || r.Epoch != s.epoch {
		return fmt.Errorf("record %q is of source %q, epoch %d: it does not belong here", r.Id, r.Source, r.Epoch)
	}
	return nil
}
