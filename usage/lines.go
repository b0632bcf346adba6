package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// Folders are those under dir, itself included, that hold the journal of a source each.
func Folders(dir string) ([]string, error) { return sourceFolders(dir) }

// Lines delivers the whole lines of the journal in one of [Folders] that lie behind a place, at most max of them, each with the
// place behind it. A place is a text to keep and hand in again; the empty one is before all. read is how many it were; fewer
// than max: there are no more by now. Like [Scan] it judges no sequence numbers. An error of f ends it and is returned as it is.
func Lines(folder, behind string, max int, f func(l Line, place string) error) (read int, err error) {
	var at position
	if behind != "" {
		if at, err = parsePosition([]byte(behind)); err != nil {
			return 0, fmt.Errorf("%q is no place in a journal: %w", behind, err)
		}
	}
	list, err := segments(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, s := range list {
		from := int64(0)
		switch order := at.compare(s); {
		case order > 0 || read == max:
			continue
		case order == 0:
			from = at.Offset
		}
		if s.size <= from {
			continue
		}
		err := eachLine(s, from, func(offset, length int64, line []byte) error {
			if read == max {
				return errEnough
			}
			read++
			place, err := json.Marshal(position{s.epoch, s.number, offset + length})
			if err != nil {
				return err
			}
			return f(s.line(offset, length, line), string(place))
		})
		if err != nil && !errors.Is(err, errEnough) && !errors.Is(err, fs.ErrNotExist) { // removed meanwhile: it was shipped
			return read, err
		}
	}
	return read, nil
}

// errEnough ends the reading of a segment.
var errEnough = errors.New("enough")
