package usage

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

var errDisk = errors.New("no space left on a bad disk")

// faultyDisk fails steps at random: "failed", "failed but it happened", and for a write anything between.
type faultyDisk struct {
	osDisk
	mu       sync.Mutex
	rng      *rand.Rand
	percent  int // of steps that fail
	failures int
}

// fault decides about one step: whether it fails, and whether it happens all the same.
func (d *faultyDisk) fault() (fails, happens bool, part float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rng.IntN(100) >= d.percent {
		return false, true, 1
	}
	d.failures++
	return true, d.rng.IntN(2) == 0, d.rng.Float64()
}

func (d *faultyDisk) heal() {
	d.mu.Lock()
	d.percent = 0
	d.mu.Unlock()
}

func (d *faultyDisk) Create(path string) (file, error) {
	fails, happens, _ := d.fault()
	if !happens {
		return nil, errDisk
	}
	f, err := d.osDisk.Create(path)
	if err != nil {
		return nil, err
	}
	if fails {
		f.Close()
		return nil, errDisk
	}
	return &faultyFile{f, d}, nil
}

func (d *faultyDisk) SyncDir(dir string) error {
	if fails, _, _ := d.fault(); fails {
		return errDisk
	}
	return nil // as Sync below
}

func (d *faultyDisk) Remove(path string) error {
	fails, happens, _ := d.fault()
	if happens {
		if err := d.osDisk.Remove(path); err != nil {
			return err
		}
	}
	if fails {
		return errDisk
	}
	return nil
}

type faultyFile struct {
	file
	disk *faultyDisk
}

func (f *faultyFile) Write(p []byte) (int, error) {
	fails, happens, part := f.disk.fault()
	if !fails {
		return f.file.Write(p)
	}
	if !happens {
		p = p[:int(part*float64(len(p)))]
	}
	n, _ := f.file.Write(p)
	if part < 0.2 {
		n = 0 // not even the count is true
	}
	return n, errDisk
}

func (f *faultyFile) Sync() error {
	if fails, _, _ := f.disk.fault(); fails {
		return errDisk
	}
	return nil // nothing here cuts the power, and the real one would take most of the test's time
}

func TestFailingDiskLosesNothingAndDoublesNothing(t *testing.T) {
	failures := 0
	for seed := range uint64(20) {
		dir := t.TempDir()
		disk := &faultyDisk{rng: rand.New(rand.NewPCG(seed, 1)), percent: 5 + 2*int(seed)}
		synced := []time.Duration{time.Nanosecond, time.Millisecond}[seed%2] // each by itself, or some together, written one by one
		s := open(t, dir, Options{disk: disk, wait: time.Nanosecond, waitMax: time.Microsecond, SegmentBytes: 3000, WriteWindow: time.Nanosecond, SyncWindow: synced})
		for i := range 200 {
			s.Append(record(i))
			if i%7 == 0 {
				flush(t, s)
				assertThere(t, dir, i)
			}
		}
		disk.heal()
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		assertThere(t, dir, 199)
		if st := s.Stats(); st.Lost != 0 || st.Synced != 200 || st.Err != "" {
			t.Fatalf("seed %d: %+v", seed, st)
		}
		failures += disk.failures
	}
	if failures < 300 {
		t.Errorf("only %d steps failed: the test shows little", failures)
	}
}

// assertThere reads the journal and wants records 0 to last, in order, once each, without a gap and without damage.
func assertThere(t *testing.T, dir string, last int) {
	t.Helper()
	list, sum := readAll(t, dir)
	if len(list) != last+1 {
		t.Fatalf("%d records instead of %d: %+v", len(list), last+1, sum)
	}
	for i, r := range list {
		if r.Sequence != uint64(i+1) || r.Id != record(i).Id {
			t.Fatalf("position %d: %v", i, r)
		}
	}
}

// The segment whose tail is unknown is not written to again.
func TestNothingFollowsAFailedWrite(t *testing.T) {
	dir := t.TempDir()
	disk := &stepDisk{}
	s := open(t, dir, Options{disk: disk, wait: time.Nanosecond, waitMax: time.Microsecond})
	s.Append(record(0))
	flush(t, s)
	disk.set(func(f file, p []byte) (int, error) {
		n, _ := f.Write(p[:len(p)/2])
		return n, errDisk
	})
	s.Append(record(1))
	flush(t, s)
	s.Append(record(2))
	flush(t, s)
	files, _ := filepath.Glob(dir + "/door_main/*.log")
	if len(files) != 2 {
		t.Fatalf("segments: %v", files)
	}
	first, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	line := len(appendLine(nil, &usagev1.Record{
		Id: "a0/usage", Kind: KindUsage, Admission: "a0", Source: "door/main", Epoch: s.Stats().Epoch, Sequence: 1}))
	if len(first) != line+line/2 {
		t.Errorf("%d bytes in the segment that failed, want %d", len(first), line+line/2)
	}
	_, sum := readAll(t, dir)
	assertThere(t, dir, 2)
	if sum.Torn != 1 {
		t.Errorf("%+v", sum)
	}
}

// A write and a sync that fail but happened: the records are there twice, and are delivered once.
func TestFailedButHappened(t *testing.T) {
	dir := t.TempDir()
	disk := &stepDisk{}
	s := open(t, dir, Options{disk: disk, wait: time.Nanosecond, waitMax: time.Microsecond})
	s.Append(record(0))
	flush(t, s)
	disk.set(func(f file, p []byte) (int, error) {
		n, _ := f.Write(p)
		return n, errDisk
	})
	s.Append(record(1))
	flush(t, s)
	_, sum := readAll(t, dir)
	assertThere(t, dir, 1)
	if sum.Repeated != 1 || sum.Torn != 0 {
		t.Errorf("%+v", sum)
	}
}

// A disk that never comes back: Close gives up when told to, and every record is counted.
func TestCloseGivesUp(t *testing.T) {
	dir := t.TempDir()
	disk := &faultyDisk{rng: rand.New(rand.NewPCG(1, 1)), percent: 100}
	s := open(t, dir, Options{disk: disk, wait: time.Millisecond})
	for i := range 10_000 {
		s.Append(record(i))
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for s.Stats().Err == "" {
			time.Sleep(time.Millisecond) // polls a fact
		}
		cancel()
	}()
	if err := s.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("flush on a dead disk: %v", err)
	}
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("close on a dead disk: %v", err)
	}
	if st := s.Stats(); st.Lost != 10_000 || st.Synced != 0 || st.Err != errDisk.Error() {
		t.Errorf("%+v", st)
	}
}

// stepDisk lets one write be replaced.
type stepDisk struct {
	osDisk
	mu   sync.Mutex
	next func(f file, p []byte) (int, error)
}

func (d *stepDisk) set(next func(f file, p []byte) (int, error)) {
	d.mu.Lock()
	d.next = next
	d.mu.Unlock()
}

func (d *stepDisk) Create(path string) (file, error) {
	f, err := d.osDisk.Create(path)
	if err != nil {
		return nil, err
	}
	return &stepFile{f, d}, nil
}

type stepFile struct {
	file
	disk *stepDisk
}

func (f *stepFile) Write(p []byte) (int, error) {
	f.disk.mu.Lock()
	next := f.disk.next
	f.disk.next = nil
	f.disk.mu.Unlock()
	if next != nil {
		return next(f.file, p)
	}
	return f.file.Write(p)
}
