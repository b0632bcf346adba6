package usage

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// cursor walks over the lines of one source's journal, all epochs, for shipping. Unlike a sourceReader it judges no
// sequence numbers: a record that is there twice is shipped twice, and its id tells.
type cursor struct {
	dir string
	at  position
}

// next fills c with the next whole lines, all of one segment, and goes on behind them. false: there is no more by now.
func (u *cursor) next(c *chunk) (bool, error) {
	list, err := segments(u.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for i, s := range list {
		switch order := u.at.compare(s); {
		case order > 0:
			continue
		case order < 0:
			u.at = position{s.epoch, s.number, 0}
		}
		n, err := u.fill(c, s, i < len(list)-1)
		if n > 0 || err != nil {
			u.at.Offset += n
			c.to = u.at
			return n > 0, err
		}
	}
	return false, nil
}

// fill reads from s and returns how many bytes it has dealt with. finished: nothing more will be written to s, so that an
// unfinished line at its end is left behind, as [Read] does: nothing in it was ever acknowledged.
func (u *cursor) fill(c *chunk, s segment, finished bool) (int64, error) {
	if s.size <= u.at.Offset && !finished {
		return 0, nil
	}
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // removed meanwhile: what it held is in the next one, or was shipped
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := c.buf
	if !finished { // what a loss of power would take from the disk must not be known elsewhere
		if err := f.Sync(); err != nil {
			return 0, err
		}
		buf = buf[:min(int64(len(buf)), s.size-u.at.Offset)] // what was written since may not be there
	}
	n, err := f.ReadAt(buf, u.at.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	c.begin(filepath.Base(s.path), u.at.Offset)
	whole := bytes.LastIndexByte(c.buf[:n], '\n') + 1
	if whole == 0 && n == len(c.buf) {
		c.spoil(0, c.buf, errNoEnd)
		return int64(n), nil
	}
	c.lines(c.buf[:whole])
	return int64(whole), nil
}

var errNoEnd = errors.New("bytes without the end of a line, more than any line has")
