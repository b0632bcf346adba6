package usage

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// journal writes n records as one segment and returns its path and lines.
func journal(t *testing.T, dir string, n int) (path string, lines [][]byte) {
	t.Helper()
	s := open(t, dir, Options{})
	for i := range n {
		s.Append(record(i))
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "door_main", segmentName(s.Stats().Epoch, 1))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, bytes.SplitAfter(b, []byte("\n"))[:n]
}

func TestReadTellsDamage(t *testing.T) {
	other := func(r *usagev1.Record) []byte { return appendLine(nil, r) }
	cases := []struct {
		name    string
		change  func(lines [][]byte, epoch uint64) [][]byte
		want    string // in the error; empty: no damage
		records int
	}{
		{"nothing", func(l [][]byte, _ uint64) [][]byte { return l }, "", 5},
		{"a byte changed", func(l [][]byte, _ uint64) [][]byte { l[2][40] ^= 1; return l }, "check sum", 4},
		{"a byte of the last line changed", func(l [][]byte, _ uint64) [][]byte { l[4][40] ^= 1; return l }, "check sum", 4},
		{"a line removed", func(l [][]byte, _ uint64) [][]byte { return append(l[:2:2], l[3:]...) }, "sequence 3 is missing", 4},
		{"two lines removed", func(l [][]byte, _ uint64) [][]byte { return append(l[:2:2], l[4:]...) }, "sequences 3 to 4 are missing", 3},
		{"a line doubled", func(l [][]byte, _ uint64) [][]byte { return append(l[:3:3], l[2:]...) }, "", 5},
		{"two lines swapped", func(l [][]byte, _ uint64) [][]byte { l[1], l[2] = l[2], l[1]; return l }, "", 5},
		{"another record under a number", func(l [][]byte, epoch uint64) [][]byte {
			return append(l, other(&usagev1.Record{Id: "forged", Source: "door/main", Epoch: epoch, Sequence: 3}))
		}, "another content", 5},
		{"another epoch", func(l [][]byte, epoch uint64) [][]byte {
			return append(l, other(&usagev1.Record{Id: "x", Source: "door/main", Epoch: epoch + 1, Sequence: 6}))
		}, "does not belong here", 5},
		{"another source", func(l [][]byte, epoch uint64) [][]byte {
			return append(l, other(&usagev1.Record{Id: "x", Source: "door/b", Epoch: epoch, Sequence: 6}))
		}, "does not belong here", 5},
		{"an empty line", func(l [][]byte, _ uint64) [][]byte { return append(l, []byte("\n")) }, "no check sum", 5},
		{"zeros at the end", func(l [][]byte, _ uint64) [][]byte { return append(l, make([]byte, 5000)) }, "", 5},
		{"an endless tail", func(l [][]byte, _ uint64) [][]byte { return append(l, make([]byte, 3*MaxLine)) }, "", 5},
		{"a line too long in the middle", func(l [][]byte, _ uint64) [][]byte {
			l[1] = append(bytes.Repeat([]byte("x"), 2*MaxLine), l[1]...)
			return l
		}, "a line of 131", 4},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path, lines := journal(t, dir, 5)
			epoch, _, _ := segmentOf(filepath.Base(path))
			if err := os.WriteFile(path, bytes.Join(c.change(lines, epoch), nil), 0o600); err != nil {
				t.Fatal(err)
			}
			n := 0
			sum, err := Read(dir, func(*usagev1.Record) error { n++; return nil })
			var damage *DamageError
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%v", err)
			case c.want != "" && (!errors.As(err, &damage) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if n != c.records || sum.Records != uint64(n) {
				t.Errorf("%d records, %+v", n, sum)
			}
		})
	}
}

func TestReadStopsAtAnErrorOfItsCaller(t *testing.T) {
	dir := t.TempDir()
	journal(t, dir, 5)
	stop := errors.New("enough")
	n := 0
	if _, err := Read(dir, func(*usagev1.Record) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
	if _, err := Read(filepath.Join(dir, "absent"), func(*usagev1.Record) error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// follow runs a tail; its records come on the channel, and stop returns its error.
func follow(t *testing.T, dir string) (records chan *usagev1.Record, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	records = make(chan *usagev1.Record, 10_000)
	result := make(chan error, 1)
	tail := tailer{dir: dir, readers: map[string]*sourceReader{}, emit: func(r *usagev1.Record) error {
		records <- r
		return nil
	}}
	go func() { result <- tail.run(ctx, time.Millisecond) }()
	return records, func() error { cancel(); return <-result }
}

func next(t *testing.T, records chan *usagev1.Record) *usagev1.Record {
	t.Helper()
	select {
	case r := <-records:
		return r
	case <-time.After(patience):
		t.Fatal("no record comes")
		return nil
	}
}

// All that is there and all that comes, over segments, failed writes and a restart, of a folder that is not there yet.
func TestTailFollows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	records, stop := follow(t, dir)
	for round := range 3 {
		disk := &stepDisk{}
		s := open(t, dir, Options{SegmentBytes: 2000, disk: disk, wait: time.Nanosecond})
		for i := range 50 {
			if i%10 == 5 {
				disk.set(func(f file, p []byte) (int, error) {
					n, _ := f.Write(p[:len(p)-i])
					return n, errDisk
				})
			}
			s.Append(record(i))
			flush(t, s)
			if r := next(t, records); r.Id != record(i).Id || r.Sequence != uint64(i+1) || r.Epoch != s.Stats().Epoch {
				t.Fatalf("round %d, record %d: %v", round, i, r)
			}
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(); err != nil || len(records) != 0 {
		t.Errorf("%v, %d records more", err, len(records))
	}
}

func TestTailTellsDamageAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	path, lines := journal(t, dir, 3)
	lines[1][40] ^= 1
	if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	records, stop := follow(t, dir)
	if a, b := next(t, records), next(t, records); a.Sequence != 1 || b.Sequence != 3 {
		t.Errorf("%v, %v", a, b)
	}
	var damage *DamageError
	if err := stop(); !errors.As(err, &damage) {
		t.Errorf("%v", err)
	}
}

func TestTail(t *testing.T) {
	dir := t.TempDir()
	journal(t, dir, 3)
	enough := errors.New("enough")
	n := 0
	err := Tail(context.Background(), dir, func(*usagev1.Record) error {
		if n++; n == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n = 0
	if err := Tail(ctx, dir, func(*usagev1.Record) error { n++; return nil }); err != nil || n == 0 {
		t.Errorf("%d records when it was stopped at once: %v", n, err)
	}
}
