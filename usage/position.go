package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// position is a place between two lines of a source's journal. The zero value is before its beginning.
type position struct {
	Epoch   uint64 `json:"epoch"`
	Segment int    `json:"segment"`
	Offset  int64  `json:"offset"` // bytes
}

// compare orders the segment of the position and s.
func (p position) compare(s segment) int {
	return segment{epoch: p.Epoch, number: p.Segment}.compare(s)
}

// positionFile holds, in the folder of a source, up to where Kafka has acknowledged it.
const positionFile = "shipped.json"

// loadPosition returns the zero position where none was saved. A file that cannot be read as one is an error.
func loadPosition(dir string) (position, error) {
	path := filepath.Join(dir, positionFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return position{}, nil
	}
	var p position
	if err == nil {
		p, err = parsePosition(b)
	}
	if err != nil {
		return position{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func parsePosition(b []byte) (p position, err error) {
	if err := json.Unmarshal(b, &p); err != nil {
		return position{}, err
	}
	if p.Segment < 0 || p.Offset < 0 {
		return position{}, errors.New("a negative number")
	}
	return p, nil
}

// savePosition replaces the saved one: after a crash at any moment there is the old one or the new one.
func savePosition(dir string, p position) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, positionFile)
	if err := writeSynced(path+".new", append(b, '\n')); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return osDisk{}.SyncDir(dir)
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
