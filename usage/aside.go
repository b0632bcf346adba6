package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unicode/utf8"
)

// asideFile holds, in the folder of a source, what could not be shipped and never will be as it is: one JSON object a line.
// Nobody removes it but a human who has seen it.
const asideFile = "aside.jsonl"

// Aside is one line of the file aside.jsonl.
type Aside struct {
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
	Topic   string    `json:"topic,omitempty"` // where Kafka refused it; empty: it is no record at all
	Segment string    `json:"segment"`
	Offset  int64     `json:"offset"`         // bytes, in the segment
	Line    string    `json:"line,omitempty"` // as in the segment, check sum included
	Raw     []byte    `json:"raw,omitempty"`  // the same, where it is not UTF-8
}

// asides appends to the file of one source. It is safe for concurrent use.
type asides struct {
	dir string
	max int64

	mu sync.Mutex
}

// put returns when a is on disk. An error means that it may not be: the caller must keep the record in the journal.
func (s *asides) put(a Aside, line []byte) error {
	if utf8.Valid(line) {
		a.Line = string(line)
	} else {
		a.Raw = line
	}
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.append(append(b, '\n'))
}

func (s *asides) append(b []byte) (err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, asideFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size+int64(len(b)) > s.max {
		return fmt.Errorf("%s is full (%d bytes): look into it, then move it away", f.Name(), size)
	}
	if torn(f, size) {
		b = append([]byte("\n"), b...)
	}
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Sync(); err != nil || size > 0 {
		return err
	}
	return osDisk{}.SyncDir(s.dir)
}

// torn tells whether a crash has left a line unfinished.
func torn(f io.ReaderAt, size int64) bool {
	var last [1]byte
	if size == 0 {
		return false
	}
	_, err := f.ReadAt(last[:], size-1)
	return err == nil && last[0] != '\n'
}
