package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"
)

func fakeConfig(t testing.TB, dir string, b broker) ForwarderConfig {
	return ForwarderConfig{
		Dir: dir, Source: "door/main", Brokers: []string{"127.0.0.1:9"}, broker: b,
		poll: time.Millisecond, tidy: time.Millisecond, wait: time.Nanosecond, waitMax: time.Microsecond,
		chunkBytes: 2 * MaxLine, requestBytes: 3000, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// Whatever fails, and wherever it is stopped without having noted how far it had come: everything arrives, in order, and
// what is refused for good, that alone, is put aside.
func TestNothingIsLostOnTheWay(t *testing.T) {
	failures, doubled := 0, 0
	for seed := range uint64(10) {
		dir, b := t.TempDir(), newFakeBroker(seed, int(seed)*6)
		b.refuse = func(v []byte) bool { return bytes.Contains(v, []byte("00013/usage")) }
		healthy := &faultyDisk{rng: rand.New(rand.NewPCG(seed, 1))} // and without fsync
		s := requestJournal(t, dir, 0, Options{SegmentBytes: 20_000, disk: healthy})
		rng, saves := rand.New(rand.NewPCG(seed, 3)), rand.New(rand.NewPCG(seed, 4))
		cfg := fakeConfig(t, dir, b)
		cfg.Log = nil
		cfg.save = func(dir string, p position) error {
			if saves.IntN(3) == 0 {
				return errDisk
			}
			b, err := json.Marshal(p)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, positionFile), b, 0o600) // without fsync: nothing here cuts the power
		}
		for round := range 5 {
			appendRequests(t, s, round*50, 50)
			f, stop := forward(t, cfg)
			enough := uint64(rng.IntN(100))
			until(t, "some are shipped", func() bool {
				st := f.Status()
				return st.Shipped >= enough || st.LagBytes == 0 && f.progress.position() != position{}
			})
			stop()
		}
		f, stop := forward(t, cfg)
		drain(t, f)
		stop()
		doubled += assertArrived(t, dir, b)
		failures += b.failures
	}
	if failures < 100 || doubled < 100 {
		t.Errorf("%d failures, %d doubled: the test shows little", failures, doubled)
	}
}

// assertArrived compares what the broker has with the journal.
func assertArrived(t *testing.T, dir string, b *fakeBroker) (doubled int) {
	t.Helper()
	byTeam := kafka.Murmur2Balancer{Consistent: true}
	want := map[string][]string{}
	list, _ := readAll(t, dir)
	aside := map[string]bool{}
	for _, a := range asidesOf(t, dir) {
		r, _, err := parseLine([]byte(a.Line))
		if err != nil {
			t.Fatal(err)
		}
		aside[r.Id] = true
	}
	if len(aside) != 1 || !aside["a0000013/usage"] {
		t.Fatalf("aside: %v", aside)
	}
	for _, r := range list {
		if lane := fmt.Sprintf("spokegate.%s/%d", r.Kind, byTeam.Balance(kafka.Message{Key: []byte(r.Team)}, 0, 1, 2)); !aside[r.Id] {
			want[lane] = append(want[lane], r.Id)
		}
	}
	got := b.firsts()
	for lane := range want {
		if !slices.Equal(got[lane], want[lane]) {
			t.Fatalf("%s has %d records, want %d, or another order", lane, len(got[lane]), len(want[lane]))
		}
		doubled += len(b.got[lane]) - len(want[lane])
	}
	return doubled
}

func asidesOf(t *testing.T, dir string) []Aside {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "door_main", asideFile))
	if err != nil {
		t.Fatal(err)
	}
	var list []Aside
	for line := range bytes.Lines(b) {
		var a Aside
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, a)
	}
	return list
}

// Damage on disk is put aside as it is, and what stands around it arrives.
func TestDamageIsPutAside(t *testing.T) {
	dir, registry := t.TempDir(), prometheus.NewRegistry()
	s := requestJournal(t, dir, 10, Options{})
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	segment := filepath.Join(dir, "door_main", segmentName(s.Stats().Epoch, 1))
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	lines[3] = bytes.Replace(lines[3], []byte("alice"), []byte("mallo"), 1)
	lines[5] = []byte("\xff\xfe\n")
	lines[7] = append(bytes.Repeat([]byte("x"), 300_000), '\n')
	if err := os.WriteFile(segment, bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	tearTail(t, dir)
	unknown := requestJournal(t, dir, 0, Options{})
	r := record(1)
	r.Kind = "dream"
	unknown.Append(r)
	flush(t, unknown)
	broker := newFakeBroker(1, 0)
	cfg := fakeConfig(t, dir, broker)
	cfg.Registerer = registry
	f, stop := forward(t, cfg)
	drain(t, f)
	stop()
	var got int
	for _, ids := range broker.got {
		got += len(ids)
	}
	list := asidesOf(t, dir)
	if got != 17 || f.Status().Aside != uint64(len(list)) || testutil.ToFloat64(f.metrics.aside.WithLabelValues(asideDamaged)) != float64(len(list)) {
		t.Errorf("%d arrived, %+v, %d aside", got, f.Status(), len(list))
	}
	var whole bytes.Buffer
	for _, a := range list {
		whole.WriteString(a.Line)
		whole.Write(a.Raw)
	}
	for _, part := range []string{"mallo", "\xff\xfe", strings.Repeat("x", 300_000), `"dream"`} {
		if !strings.Contains(whole.String(), part) {
			t.Errorf("%.20q is not kept", part)
		}
	}
}

// A full aside file stops everything, rather than lose a record; moved away, all goes on.
func TestAsideFileIsBounded(t *testing.T) {
	dir, b := t.TempDir(), newFakeBroker(1, 0)
	b.refuse = func([]byte) bool { return true }
	requestJournal(t, dir, 10, Options{})
	cfg := fakeConfig(t, dir, b)
	cfg.AsideBytes = 5000
	f, stop := forward(t, cfg)
	until(t, "the file is full", func() bool { return strings.Contains(f.Status().Err, "is full") })
	stop()
	path := filepath.Join(dir, "door_main", asideFile)
	first := asidesOf(t, dir)
	if err := os.WriteFile(path, []byte(`{"torn":`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.AsideBytes = 0
	f, stop = forward(t, cfg)
	drain(t, f)
	stop()
	left, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(left, []byte("{\"torn\":\n{")) {
		t.Fatalf("%v, %.30q", err, left)
	}
	ids := map[string]bool{}
	for line := range bytes.Lines(left[len("{\"torn\":\n"):]) {
		var a Aside
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		ids[a.Line] = true
	}
	for _, a := range first {
		ids[a.Line] = true
	}
	if len(ids) != 20 {
		t.Errorf("%d records are aside", len(ids))
	}
}

// Shipped segments go by age or size, the spool sees it, and what is not shipped stays.
func TestShippedSegmentsAreRemoved(t *testing.T) {
	for _, c := range []struct {
		name      string
		keepFor   time.Duration
		keepBytes int64
		age       time.Duration
		want      int // segments of eleven
	}{
		{"kept", 0, 0, time.Hour, 11},
		{"too old", 0, 0, 25 * time.Hour, 1},
		{"too much", 0, 25_000, time.Hour, 3},
		{"at once", -1, 0, 0, 1},
		{"no bytes", 0, -1, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := requestJournal(t, dir, 0, Options{SegmentBytes: 8000})
			for i := range 10 {
				appendRequests(t, s, i*10, 10)
			}
			before, _ := filepath.Glob(dir + "/door_main/*.log")
			if len(before) != 10 {
				t.Fatalf("%d segments", len(before))
			}
			for _, path := range before {
				if err := os.Chtimes(path, time.Time{}, time.Now().Add(-c.age)); err != nil {
					t.Fatal(err)
				}
			}
			cfg := fakeConfig(t, dir, newFakeBroker(1, 0))
			cfg.KeepFor, cfg.KeepBytes = c.keepFor, c.keepBytes
			f, _ := forward(t, cfg)
			drain(t, f)
			appendRequests(t, s, 100, 1)
			drain(t, f)
			until(t, "the right segments are there", func() bool {
				after, _ := filepath.Glob(dir + "/door_main/*.log")
				return len(after) == c.want
			})
			if r, _ := readAll(t, dir); r[len(r)-1].Admission != "a0000100" {
				t.Error("the newest is gone")
			}
		})
	}
}
