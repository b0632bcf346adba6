package usage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Line is one whole line of a journal, as it stands there.
type Line struct {
	File   string
	Offset int64           // of the line in the file, bytes
	Record *usagev1.Record // nil where Err is set
	Body   []byte          // the record's JSON, until the callback returns; nil where Err is set
	Err    error           // it is damaged, too long, or of another source or epoch than its file
}

// Scan delivers every whole line of every journal under dir, file by file. Unlike [Read] it judges no sequence numbers: a
// line that is there twice is delivered twice. An error of f ends it and is returned as it is. A segment's unfinished last
// line is passed over: nothing in it was ever acknowledged.
func Scan(dir string, f func(Line) error) error {
	folders, err := sourceFolders(dir)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		list, err := segments(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, s := range list {
			if err := scanSegment(s, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func scanSegment(s segment, f func(Line) error) error {
	err := eachLine(s, 0, func(at, length int64, line []byte) error { return f(s.line(at, length, line)) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil // shipped and removed meanwhile
	}
	return err
}

// line is one as it stands at a place of the segment; nil: it is too long to be one.
func (s segment) line(at, length int64, line []byte) Line {
	l := Line{File: s.path, Offset: at}
	if line == nil {
		l.Err = fmt.Errorf("a line of %d bytes, at most %d are expected", length, MaxLine)
	} else if l.Record, l.Err = s.record(line); l.Err == nil {
		l.Body = line[sumLen:]
	}
	return l
}

// eachLine calls f with every whole line of s from an offset on, without its line feed: where it begins, its length with the
// line feed, and the line until the next one, or nil if it is too long to be one.
func eachLine(s segment, from int64, f func(at, length int64, line []byte) error) error {
	file, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(file, MaxLine)
	for at := from; ; {
		line, err := in.ReadSlice('\n')
		length := int64(len(line))
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = in.ReadSlice('\n')
			length += int64(len(line))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line = line[:len(line)-1]
		if long {
			line = nil
		}
		if err := f(at, length, line); err != nil {
			return err
		}
		at += length
	}
}

// record reads a line of the segment.
func (s segment) record(line []byte) (*usagev1.Record, error) {
	r, _, err := parseLine(line)
	if err != nil {
		return nil, err
	}
	if err := belongs(r, s); err != nil {
		return nil, err
	}
	return r, nil
}
