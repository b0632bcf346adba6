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
)

// A last-good folder holds the revision in force and the one before it. A whole one is a file named by its number: a first line
// with the format and the SHA-256 of the rest, then the encoded set. A file has its name only when it is whole and synced.
// What follows a large one is appended as steps to a log beside it, each with its own SHA-256 and synced before it counts, so
// that one key that is revoked among a million costs one shard. A crash at any moment leaves the newer or the older revision,
// never a mixture.
const (
	savedPrefix = "policy-"
	savedSuffix = ".pb"
	savedFormat = "spokegate-policy-1 "

	// stepsFrom is Keeper.from outside of tests.
	stepsFrom = 1 << 20
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

// Keeper keeps revisions in a folder. One at a time may write there; it is not for concurrent use.
type Keeper struct {
	dir    string
	from   int64 // bytes of a set that is not written whole each time
	loaded bool
	newest uint64 // the highest number that is on disk
	last   *Cut   // what base and log say; nil: the next one is written whole
	base   uint64 // the number of the whole one
	size   int64  // of it, in bytes
	steps  int64  // of its log
}

// NewKeeper is of the folder, which need not be there. Nothing is read yet.
func NewKeeper(dir string) *Keeper { return &Keeper{dir: dir, from: stepsFrom} }

// Load is [Keeper.Load] for those who only look.
func Load(dir string) (*Cut, error) { return NewKeeper(dir).Load() }

// Load gives the newest revision that is whole. fs.ErrNotExist says that there is none at all. A [Damaged] error says that the
// newest is not whole; the cut beside it, if there is one, is the revision before.
func (k *Keeper) Load() (*Cut, error) {
	k.loaded, k.last = false, nil
	kept, err := saved(k.dir)
	if err != nil {
		return nil, fmt.Errorf("load last good policy: %w", err)
	}
	k.loaded = true
	if len(kept) == 0 {
		return nil, fmt.Errorf("load last good policy: %s: %w", k.dir, fs.ErrNotExist)
	}
	damaged := &Damaged{Newest: kept[0]}
	for _, number := range kept {
		cut, size, err := loadOne(k.dir, number)
		if err != nil {
			damaged.Newest = max(damaged.Newest, loggedLast(filepath.Join(k.dir, logName(number))))
			damaged.Err = errors.Join(damaged.Err, err)
			continue
		}
		log := readLog(filepath.Join(k.dir, logName(number)), cut)
		k.newest = max(damaged.Newest, log.newest)
		damaged.Newest, damaged.Err = k.newest, errors.Join(damaged.Err, log.err)
		if damaged.Err != nil {
			damaged.Used = log.cut.Revision().GetNumber()
			return log.cut, damaged
		}
		k.last, k.base, k.size, k.steps = log.cut, number, size, log.size
		return log.cut, nil
	}
	k.newest = damaged.Newest
	return nil, damaged
}

func loadOne(dir string, number uint64) (*Cut, int64, error) {
	path := filepath.Join(dir, savedName(number))
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	first, body, ok := bytes.Cut(data, []byte("\n"))
	if !ok || !bytes.Equal(append(first, '\n'), header(savedFormat, body)) {
		return nil, 0, fmt.Errorf("%s: damaged: the checksum does not fit", path)
	}
	set, err := decodeSet(body)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: damaged: %w", path, err)
	}
	if set.revision.GetNumber() != number {
		return nil, 0, fmt.Errorf("%s: damaged: holds revision %d", path, set.revision.GetNumber())
	}
	return (&Cut{}).Next(set.revision, set.changed, set.removed), int64(len(data)), nil
}

// Save keeps a cut under its revision's number, which must be above 0 and not below any that is there. It returns when the cut
// would survive a loss of power. The revision before it stays; older ones go.
func (k *Keeper) Save(c *Cut) error {
	if err := k.save(c); err != nil {
		return fmt.Errorf("keep policy: %w", err)
	}
	return nil
}

func (k *Keeper) save(c *Cut) error {
	number := c.Revision().GetNumber()
	if number == 0 {
		return errors.New("the policy has no revision number")
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return err
	}
	if !k.loaded {
		if _, err := k.Load(); !k.loaded {
			return err
		}
	}
	if k.newest > number {
		return fmt.Errorf("revision %d is older than revision %d on disk", number, k.newest)
	}
	if k.last != nil && k.size >= k.from && number > k.newest {
		changed, removed := k.last.Diff(c)
		step, err := encodeStep(c.Revision(), changed, removed)
		if err != nil {
			return err
		}
		if k.steps+int64(len(step)) <= k.size {
			return k.follow(c, step)
		}
	}
	return k.whole(c)
}

// whole writes all of a cut.
func (k *Keeper) whole(c *Cut) error {
	number := c.Revision().GetNumber()
	kept, err := saved(k.dir)
	if err != nil {
		return err
	}
	body, err := encodeSet(c.Revision(), c.All(), nil)
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(k.dir, logName(number))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // it would be read as what follows this one
	}
	if err := replace(k.dir, savedPrefix, savedName(number), append(header(savedFormat, body), body...)); err != nil {
		return err
	}
	k.last, k.base, k.size, k.steps, k.newest = c, number, int64(len(body)), 0, number
	prune(k.dir, number, kept)
	return nil
}

// prune removes what is older than the whole one before number, and what a crash left half written. One that is damaged is no
// use to fall back to. What cannot be removed does no harm.
func prune(dir string, number uint64, kept []uint64) {
	before := false
	for _, n := range kept {
		if n >= number {
			continue
		}
		if !before {
			if _, _, err := loadOne(dir, n); err == nil {
				before = true
				continue
			}
		}
		_ = os.Remove(filepath.Join(dir, savedName(n)))
		_ = os.Remove(filepath.Join(dir, logName(n)))
	}
	sweep(dir, savedPrefix)
}

func savedName(number uint64) string {
	return fmt.Sprintf("%s%020d%s", savedPrefix, number, savedSuffix)
}

// saved are the numbers of the whole revisions in dir, newest first. A folder that is not there holds none.
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
