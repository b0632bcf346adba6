package usage

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// linksOf returns the links of all that is in a journal, as often as it stands there.
func linksOf(t testing.TB, dir string) (list []Link, records []*usagev1.Record) {
	t.Helper()
	err := Scan(dir, func(l Line) error {
		if l.Err != nil {
			return l.Err
		}
		link, err := LinkOf(l.Record, l.Body)
		list, records = append(list, link), append(records, l.Record)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list, records
}

// audit returns the mismatches as text, and the proofs.
func audit(links []Link) (mismatches []string, proofs []Proof) {
	a := NewAuditor(func(m Mismatch) { mismatches = append(mismatches, fmt.Sprintf("%d: %s", m.Sequence, m.What)) })
	for _, l := range links {
		a.Add(l)
	}
	proofs = a.Finish()
	return mismatches, proofs
}

// signing opens a spool whose checkpoints come only at its end.
func signing(t *testing.T, dir string, opts Options) *Spool {
	t.Helper()
	opts.Checkpoint = time.Hour
	return open(t, dir, opts)
}

func closeSpool(t *testing.T, s *Spool) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	<-s.done
}

// Two runs: every record is in the chain, and each run is closed by its own checkpoint.
func TestEveryEpochIsProved(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		s := signing(t, dir, Options{SegmentBytes: 4000})
		for i := range 50 {
			s.Append(record(i))
		}
		closeSpool(t, s)
		if st := s.Stats(); st.Appended != 50 || st.Synced != 50 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
	}
	links, records := linksOf(t, dir)
	bad, proofs := audit(links)
	if len(bad) != 0 || len(proofs) != 2 {
		t.Fatalf("%q, %+v", bad, proofs)
	}
	for _, p := range proofs {
		if p.Records != 51 || p.First != 1 || p.Last != 51 || p.Proven != 50 || !p.Closed || p.Unchained != 0 || len(p.Fingerprints) != 1 {
			t.Errorf("%+v", p)
		}
	}
	last := records[len(records)-1]
	want := fmt.Sprintf("checkpoint/door/main/%d/50", last.Epoch)
	if c := last.Checkpoint; last.Id != want || last.Kind != KindCheckpoint || c.Count != 50 || last.EndedAt == nil || records[0].Previous != (Digest{}).String() {
		t.Errorf("%v", last)
	}
	if list, sum := readAll(t, dir); len(list) != 102 || len(sum.Epochs) != 2 {
		t.Errorf("%d records are read, %+v", len(list), sum)
	}
}

// Checkpoints come while nothing else does, and each speaks of what the one before did not.
func TestCheckpointsComeByThemselves(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{Checkpoint: time.Millisecond})
	s.Append(record(1))
	until(t, "five checkpoints", func() bool { _, r := linksOf(t, dir); return len(r) > 5 })
	closeSpool(t, s)
	links, records := linksOf(t, dir)
	covered := uint64(0)
	for _, r := range records {
		if c := r.Checkpoint; c != nil {
			if covered += c.Count; covered != c.Sequence || c.Sequence != r.Sequence-1 || c.Epoch != r.Epoch {
				t.Errorf("%v, and %d are covered", r, covered)
			}
		}
	}
	if bad, proofs := audit(links); len(bad) != 0 || !proofs[0].Closed || proofs[0].Proven != uint64(len(links)-1) {
		t.Errorf("%q, %+v", bad, proofs)
	}
	if st := s.Stats(); st.Appended != 1 || st.Synced != 1 {
		t.Errorf("%+v", st)
	}
}

// Whatever fails of the disk, the chain holds.
func TestTheChainOnAFailingDisk(t *testing.T) {
	for seed := range uint64(5) {
		dir := t.TempDir()
		disk := &faultyDisk{rng: rand.New(rand.NewPCG(seed, 9)), percent: 20}
		s := open(t, dir, Options{Checkpoint: time.Millisecond, disk: disk, wait: time.Nanosecond, waitMax: time.Microsecond, SegmentBytes: 3000, WriteWindow: time.Nanosecond, SyncWindow: time.Nanosecond})
		for i := range 100 {
			s.Append(record(i))
			if i%7 == 0 {
				flush(t, s)
			}
		}
		flush(t, s)
		disk.heal()
		closeSpool(t, s)
		healthy := signing(t, dir, Options{}) // which closes what is still open
		closeSpool(t, healthy)
		links, _ := readable(t, dir)
		bad, proofs := audit(links)
		if len(bad) != 0 || !proofs[0].Closed || proofs[0].Proven < 100 || disk.failures == 0 {
			t.Fatalf("seed %d: %q, %+v, %d failures", seed, bad, proofs, disk.failures)
		}
	}
}

// readable is linksOf, but for lines that a failing disk has torn.
func readable(t *testing.T, dir string) (list []Link, torn int) {
	t.Helper()
	err := Scan(dir, func(l Line) error {
		if l.Err != nil {
			torn++
			return nil
		}
		link, err := LinkOf(l.Record, l.Body)
		list = append(list, link)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list, torn
}

// A process that was killed with -9 signs nothing; the next one closes its epoch, by what is on disk.
func TestKilledEpochIsClosed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("USAGE_TEST_CHECKPOINT", "20ms")
	for range 3 {
		killedChild(t, dir, 10)
		tearTail(t, dir)
	}
	closeSpool(t, signing(t, dir, Options{}))
	links, _ := linksOf(t, dir)
	bad, proofs := audit(links)
	if len(bad) != 0 || len(proofs) != 4 {
		t.Fatalf("%q, %+v", bad, proofs)
	}
	for _, p := range proofs[:3] {
		if !p.Closed || p.Proven != p.Last || p.Records != p.Last {
			t.Errorf("%+v", p)
		}
	}
}

// An epoch without a chain, of an older version, gets no checkpoint.
func TestNoChainNoCheckpoint(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	s.Append(record(1))
	closeSpool(t, s)
	closeSpool(t, signing(t, dir, Options{}))
	links, _ := linksOf(t, dir)
	if bad, proofs := audit(links); len(bad) != 0 || len(proofs) != 1 || proofs[0].Unchained != 1 || proofs[0].Proven != 0 {
		t.Errorf("%q, %+v", bad, proofs)
	}
}

func TestSignKey(t *testing.T) {
	dir := t.TempDir()
	first, err := signKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, signKeyFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if again, err := signKey(dir); err != nil || !again.Equal(first) {
		t.Errorf("another key at the second start: %v", err)
	}
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if other, err := signKey(dir); err == nil || len(other) != ed25519.PrivateKeySize || other.Equal(first) {
		t.Errorf("of a damaged file: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "nonsense" {
		t.Error("the damaged file was replaced")
	}
	var log strings.Builder
	newNotary(dir, "door/main", time.Hour, nil, slog.New(slog.NewTextHandler(&log, nil))).tick.Stop()
	if !strings.Contains(log.String(), "SHA256:") || !strings.Contains(log.String(), "no PEM") {
		t.Errorf("the log says %s", log.String())
	}
}

// A checkpoint is shipped to the topic of what is said of sources.
func TestCheckpointsTopic(t *testing.T) {
	dir, b := t.TempDir(), newFakeBroker(1, 0)
	s := signing(t, dir, Options{})
	appendRequests(t, s, 0, 5)
	closeSpool(t, s)
	f, _ := forward(t, fakeConfig(t, dir, b))
	drain(t, f)
	if st := f.Status(); st.Shipped != 11 || st.Aside != 0 {
		t.Errorf("%+v", st)
	}
	id := CheckpointID("door/main", s.Stats().Epoch, 10)
	b.mu.Lock()
	defer b.mu.Unlock()
	for lane, ids := range b.got {
		if strings.HasPrefix(lane, "spokegate.balance/") != slices.Contains(ids, id) {
			t.Errorf("%s has %q", lane, ids)
		}
	}
	c := newChunk(0)
	c.begin("x.log", 0)
	_, records := linksOf(t, dir)
	c.lines(appendLine(nil, records[10]))
	if e := c.events[0]; e.topic != KindBalance || e.kind != KindCheckpoint || string(e.headers[4].Value) != "spokegate.checkpoint.v1" {
		t.Errorf("%+v", e)
	}
}
