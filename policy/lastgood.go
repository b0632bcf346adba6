package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// A last-good folder holds the revision in force and the one before it, each in a file named by its number: a first line
// with the format and the SHA-256 of the rest, then the encoded set. A file has its name only when it is whole and synced,
// so a crash at any moment leaves the newer or the older revision, never a mixture.
const (
	savedPrefix = "policy-"
	savedSuffix = ".pb"
	savedFormat = "spokegate-policy-1 "
)

// Damaged is the error of a [Load] that found the newest revision damaged.
type Damaged struct {
	Newest uint64 // its number, which must not be given to another
	Used   uint64 // the revision before it, which Load gives instead; 0: none is whole
	Err    error  // which files, and what is wrong with them
}

func (d *Damaged) Error() string {
	if d.Used == 0 {
		return fmt.Sprintf("no revision on disk is whole: %v", d.Err)
	}
	return fmt.Sprintf("revision %d on disk is damaged, taking revision %d: %v", d.Newest, d.Used, d.Err)
}

func (d *Damaged) Unwrap() error { return d.Err }

// Save keeps a set in dir, under its revision's number, which must be above 0 and not below any that is there. It returns
// when the set would survive a loss of power. The revision before it stays; older ones go.
func Save(dir string, set *policyv1.Set) error {
	number := set.GetRevision().GetNumber()
	if number == 0 {
		return errors.New("keep policy: the set has no revision number")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keep policy: %w", err)
	}
	kept, err := saved(dir)
	if err != nil {
		return fmt.Errorf("keep policy: %w", err)
	}
	if len(kept) > 0 && kept[0] > number {
		return fmt.Errorf("keep policy: revision %d is older than revision %d on disk", number, kept[0])
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
	if err != nil {
		return fmt.Errorf("keep policy: %w", err)
	}
	if err := replace(dir, savedPrefix, savedName(number), append(header(savedFormat, body), body...)); err != nil {
		return fmt.Errorf("keep policy: %w", err)
	}
	prune(dir, number, kept)
	return nil
}

// Load gives the newest set in dir that is whole. fs.ErrNotExist says that there is none at all. A [Damaged] error says
// that the newest is not whole; the set beside it, if there is one, is the revision before.
func Load(dir string) (*policyv1.Set, error) {
	kept, err := saved(dir)
	if err != nil {
		return nil, fmt.Errorf("load last good policy: %w", err)
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("load last good policy: %s: %w", dir, fs.ErrNotExist)
	}
	damaged := &Damaged{Newest: kept[0]}
	for _, number := range kept {
		set, err := loadOne(dir, number)
		switch {
		case err != nil:
			damaged.Err = errors.Join(damaged.Err, err)
		case damaged.Err == nil:
			return set, nil
		default:
			damaged.Used = number
			return set, damaged
		}
	}
	return nil, damaged
}

func loadOne(dir string, number uint64) (*policyv1.Set, error) {
	path := filepath.Join(dir, savedName(number))
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	first, body, ok := bytes.Cut(data, []byte("\n"))
	if !ok || !bytes.Equal(append(first, '\n'), header(savedFormat, body)) {
		return nil, fmt.Errorf("%s: damaged: the checksum does not fit", path)
	}
	set := &policyv1.Set{}
	if err := proto.Unmarshal(body, set); err != nil {
		return nil, fmt.Errorf("%s: damaged: %w", path, err)
	}
	if set.GetRevision().GetNumber() != number {
		return nil, fmt.Errorf("%s: damaged: holds revision %d", path, set.GetRevision().GetNumber())
	}
	return set, nil
}

func savedName(number uint64) string {
	return fmt.Sprintf("%s%020d%s", savedPrefix, number, savedSuffix)
}

// saved are the numbers of the revisions in dir, newest first. A folder that is not there holds none.
func saved(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		var n uint64
		if _, err := fmt.Sscanf(e.Name(), savedPrefix+"%d"+savedSuffix, &n); err == nil && e.Name() == savedName(n) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b uint64) int { return cmp.Compare(b, a) })
	return out, nil
}

// prune removes what is older than the revision before number, and what a crash left half written. The one before is the
// newest that is whole: a damaged one is no use to fall back to. What cannot be removed does no harm.
func prune(dir string, number uint64, kept []uint64) {
	before := false
	for _, n := range kept {
		if n >= number {
			continue
		}
		if !before {
			if _, err := loadOne(dir, n); err == nil {
				before = true
				continue
			}
		}
		_ = os.Remove(filepath.Join(dir, savedName(n)))
	}
	sweep(dir, savedPrefix)
}
