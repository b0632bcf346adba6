package usage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// segment is one file of a source.
type segment struct {
	epoch  uint64
	number int // from 1; a number may be missing, sequence numbers tell whether records are
	path   string
	size   int64

	modified time.Time
}

func (s segment) before(t segment) bool { return s.compare(t) < 0 }

func (s segment) compare(t segment) int {
	return cmp.Or(cmp.Compare(s.epoch, t.epoch), cmp.Compare(s.number, t.number))
}

func segmentName(epoch uint64, number int) string {
	return fmt.Sprintf("%010d-%06d.log", epoch, number)
}

var segmentPattern = regexp.MustCompile(`^([0-9]{10,19})-([0-9]{6,9})\.log$`)

// segmentOf tells whether a file's name is a segment's.
func segmentOf(name string) (epoch uint64, number int, ok bool) {
	m := segmentPattern.FindStringSubmatch(name)
	if m == nil {
		return 0, 0, false
	}
	epoch, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		return 0, 0, false
	}
	number, err = strconv.Atoi(m[2])
	return epoch, number, err == nil
}

// segments lists those of one folder in order. One that is removed meanwhile is left out.
func segments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []segment
	for _, e := range entries {
		epoch, number, ok := segmentOf(e.Name())
		if !ok {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, segment{
			epoch: epoch, number: number, path: filepath.Join(dir, e.Name()), size: info.Size(), modified: info.ModTime(),
		})
	}
	slices.SortFunc(list, segment.compare)
	return list, nil
}

var sourcePattern = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

// folderOf is the name of a source's folder.
func folderOf(source string) (string, error) {
	if !sourcePattern.MatchString(source) || len(source) > 200 {
		return "", fmt.Errorf("journal source %q: letters, digits, '.', '_', '-' between slashes are expected, at most 200", source)
	}
	folder := strings.ReplaceAll(source, "/", "_")
	if strings.Trim(folder, ".") == "" {
		return "", fmt.Errorf("journal source %q: dots alone are no name", source)
	}
	return folder, nil
}
