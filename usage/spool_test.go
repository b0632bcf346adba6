package usage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("USAGE_TEST_CHILD"); dir != "" {
		child(dir) // never returns
	}
	if dir := os.Getenv("USAGE_TEST_SHIPPER"); dir != "" {
		shipper(dir) // never returns
	}
	goleak.VerifyTestMain(allTests{m})
}

// allTests stops what the tests share before leaks are looked for.
type allTests struct{ *testing.M }

func (m allTests) Run() int {
	defer theKafka.close()
	return m.M.Run()
}

func open(t *testing.T, dir string, opts Options) *Spool {
	t.Helper()
	s, err := Open(dir, "door/main", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx)
		<-s.done
	})
	return s
}

func record(i int) *usagev1.Record {
	admission := fmt.Sprintf("a%d", i)
	return &usagev1.Record{Id: UsageID(admission), Kind: KindUsage, Admission: admission}
}

// readAll returns the records' ids in the order of reading.
func readAll(t *testing.T, dir string) ([]*usagev1.Record, Summary) {
	t.Helper()
	var list []*usagev1.Record
	sum, err := Read(dir, func(r *usagev1.Record) error {
		list = append(list, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list, sum
}

func flush(t *testing.T, s *Spool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentAppendsAreAllThereInSequence(t *testing.T) {
	dir, registry := t.TempDir(), prometheus.NewRegistry()
	s := open(t, dir, Options{SegmentBytes: 20_000, Registerer: registry})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 500 {
				s.Append(record(g*500 + i))
				if i%100 == 0 {
					flush(t, s)
				}
			}
		})
	}
	all.Wait()
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	list, sum := readAll(t, dir)
	ids := map[string]bool{}
	for i, r := range list {
		ids[r.Id] = true
		if r.Sequence != uint64(i+1) || r.Source != "door/main" || r.Epoch != s.Stats().Epoch {
			t.Fatalf("record %d is %v", i, r)
		}
	}
	if len(list) != 4000 || len(ids) != 4000 || sum.Repeated != 0 || sum.Torn != 0 {
		t.Errorf("%d records, %d ids, %+v", len(list), len(ids), sum)
	}
	if files, _ := filepath.Glob(dir + "/door_main/*.log"); len(files) < 5 {
		t.Errorf("segments: %v", files)
	}
	if st := s.Stats(); st.Appended != 4000 || st.Synced != 4000 || st.Lost != 0 || st.Err != "" {
		t.Errorf("%+v", st)
	}
	want := "# HELP spokegate_usage_records_total Journal records that are on disk, by kind.\n" +
		"# TYPE spokegate_usage_records_total counter\nspokegate_usage_records_total{kind=\"usage\"} 4000\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "spokegate_usage_records_total"); err != nil {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, source := range []string{"", "..", "/a", "a//b", "door main", strings.Repeat("a", 201)} {
		if _, err := Open(dir, source, Options{}); err == nil {
			t.Errorf("source %q was accepted", source)
		}
	}
	s := open(t, dir, Options{})
	if _, err := Open(dir, "door/main", Options{}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("opened twice: %v", err)
	}
	epoch := s.Stats().Epoch
	s.Append(record(1))
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if again := open(t, dir, Options{}).Stats().Epoch; again <= epoch {
		t.Errorf("epoch %d after %d", again, epoch)
	}
	if _, err := Open(filepath.Join(dir, "door_main", segmentName(epoch, 1)), "door/other", Options{}); err == nil {
		t.Error("a file for a folder was accepted")
	}
}

func TestNextEpoch(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		have []segment
		want uint64
	}{{nil, 1000}, {[]segment{{epoch: 7}}, 1000}, {[]segment{{epoch: 7}, {epoch: 1000}}, 1001}, {[]segment{{epoch: 5000}}, 5001}} {
		if got := nextEpoch(c.have, now); got != c.want {
			t.Errorf("nextEpoch(%v) = %d, want %d", c.have, got, c.want)
		}
	}
	if got := nextEpoch(nil, time.Time{}); got != 1 {
		t.Errorf("a clock before 1970: %d", got)
	}
}

func TestLostIsCountedByReason(t *testing.T) {
	dir, registry := t.TempDir(), prometheus.NewRegistry()
	gate := &gatedDisk{disk: osDisk{}, gate: make(chan struct{})}
	s := open(t, dir, Options{Queue: 10, Registerer: registry, disk: gate})
	s.Append(&usagev1.Record{Kind: KindUsage, ClientRequestId: strings.Repeat("x", MaxLine)})
	for i := range 15 {
		s.Append(record(i))
	}
	close(gate.gate)
	if err := s.Flush(context.Background()); !errors.Is(err, ErrLost) && err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.Append(record(99))
	st := s.Stats()
	if st.Appended != 17 || st.Synced+st.Lost != 17 || st.Lost < 6 {
		t.Errorf("%+v", st)
	}
	list, _ := readAll(t, dir)
	if uint64(len(list)) != st.Synced {
		t.Errorf("%d records, %+v", len(list), st)
	}
	lost := func(reason string) float64 { return testutil.ToFloat64(s.metrics.lost.WithLabelValues(reason)) }
	if lost(lostClosed) != 1 || lost(lostTooLarge) != 1 || lost(lostQueueFull) < 5 || lost(lostQueueFull)+2 != float64(st.Lost) {
		t.Errorf("closed %v, too large %v, queue full %v, all %d", lost(lostClosed), lost(lostTooLarge), lost(lostQueueFull), st.Lost)
	}
}

// A full spool refuses, and goes on without a gap when shipped segments have been removed.
func TestMaxBytes(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{SegmentBytes: 4000, MaxBytes: 10_000, measure: time.Nanosecond})
	for i := range 100 {
		s.Append(record(i))
	}
	if err := s.Flush(context.Background()); !errors.Is(err, ErrLost) {
		t.Fatalf("flush of more than fits: %v", err)
	}
	st := s.Stats()
	if st.Lost == 0 || st.Synced == 0 || st.Bytes > 10_000 || st.Synced+st.Lost != 100 {
		t.Fatalf("%+v", st)
	}
	before, _ := readAll(t, dir)
	files, _ := filepath.Glob(dir + "/door_main/*.log")
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	s.Append(record(1000))
	flush(t, s)
	after, sum := readAll(t, dir)
	if last := after[len(after)-1]; last.Admission != "a1000" || last.Sequence != uint64(len(before)+1) || sum.Epochs[0].First == 1 {
		t.Errorf("%v, %+v", last, sum)
	}
}

// gatedDisk makes no file before the gate opens.
type gatedDisk struct {
	disk
	gate chan struct{}
}

func (d *gatedDisk) Create(path string) (file, error) {
	<-d.gate
	return d.disk.Create(path)
}

// What is written outlives a killed process, though it is not synced yet, and counts as synced only then.
func TestWrittenBeforeSynced(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{SyncWindow: time.Hour})
	for i := range 3 {
		s.Append(record(i))
		for n := 0; n <= i; { // until it is in the file
			n = 0
			if _, err := Read(dir, func(*usagev1.Record) error { n++; return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if st := s.Stats(); st.Synced != 0 || st.Lost != 0 || st.Appended != 3 {
		t.Errorf("before: %+v", st)
	}
	flush(t, s)
	if st := s.Stats(); st.Synced != 3 {
		t.Errorf("after: %+v", st)
	}
	assertThere(t, dir, 2)
	s.Append(record(3))
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	assertThere(t, dir, 3)
}
