package usage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// kept is a journal in memory.
type kept struct {
	mu      sync.Mutex
	records []*usagev1.Record
}

func (k *kept) Append(r *usagev1.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records = append(k.records, r)
}

func (k *kept) refusals() (n uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		n += r.GetRejection().GetCount()
	}
	return n
}

func refusals() (*Refusals, *kept) {
	k := &kept{}
	return NewRefusals(RefusalsConfig{Journal: k, Source: RejectedSource("d"), Epoch: 7, Spoke: "here"}), k
}

// TestRefusalsAddUp plays random floods: nothing is lost or counted twice, a record names only what is common to all that it
// stands for, and each second has few records.
func TestRefusalsAddUp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(51, 51))
	for range 20 {
		f, k := refusals()
		now, sent := time.Unix(1_700_000_000, 0), uint64(0)
		want := map[string]uint64{} // by code
		byName := map[string]uint64{}
		keys := 1 + rnd.IntN(600)
		seconds := 3
		for range seconds {
			for range rnd.IntN(3000) {
				a := Alike{Code: fmt.Sprint("code", rnd.IntN(3)), Status: 429, Key: fmt.Sprint("k", rnd.IntN(keys)), Team: "t", Revision: 3}
				f.Refuse(Refusal{Alike: a, Admission: fmt.Sprint("a", sent), Operation: "chat", ClientRequestID: "mine", At: now})
				sent++
				want[a.Code]++
				byName[a.Code+a.Key]++
			}
			now = now.Add(time.Second)
		}
		f.Close()
		f.Close()
		checkRefusals(t, k.records, want, byName)
		// Each second at most all kinds singly, their folds, and one more a code.
		if most := seconds * (refusalKinds*(refusalsSingly+1) + 3*2); len(k.records) > most {
			t.Errorf("%d records of %d refusals, want at most %d", len(k.records), sent, most)
		}
	}
}

func checkRefusals(t *testing.T, records []*usagev1.Record, want, byName map[string]uint64) {
	t.Helper()
	got, named, ids := map[string]uint64{}, map[string]uint64{}, map[string]bool{}
	for _, r := range records {
		j := r.GetRejection()
		if ids[r.Id] || r.Kind != KindRejected || j.Count < 1 || r.EndedAt == nil || r.Spoke != "here" || r.GetStatus() != 429 {
			t.Fatalf("%v", r)
		}
		ids[r.Id] = true
		if one := r.Admission != "" && r.Operation == "chat" && r.ClientRequestId == "mine" && r.Key != ""; one != (j.Count == 1) {
			t.Fatalf("count %d: %v", j.Count, r)
		}
		got[j.Code] += j.Count
		named[j.Code+r.Key] += j.Count
	}
	for code, n := range want {
		if got[code] != n {
			t.Errorf("%s: %d refusals, the records tell of %d", code, n, got[code])
		}
	}
	for name, n := range named {
		if most := byName[name]; n > most && most > 0 {
			t.Errorf("%s: %d refusals, the records tell of %d", name, most, n)
		}
	}
}

// TestFewRefusalsAreToldSingly: at a human pace each has its record, and the fourth in a second too, once it is over.
func TestFewRefusalsAreToldSingly(t *testing.T) {
	f, k := refusals()
	now := time.Unix(1_700_000_000, 0)
	for i := range 4 {
		f.Refuse(Refusal{Alike: Alike{Code: "c", Status: 401}, Admission: fmt.Sprint("a", i), At: now})
	}
	if len(k.records) != 3 {
		t.Fatalf("%d records at once", len(k.records))
	}
	f.Refuse(Refusal{Alike: Alike{Code: "c", Status: 401}, Admission: "a4", At: now.Add(-time.Hour)}) // the clock was set back
	for i, r := range k.records {
		if want := fmt.Sprint("rejected/rejected/door/d/7/", i+1); r.Id != want || r.Admission != fmt.Sprint("a", i) || r.GetRejection().GetCount() != 1 {
			t.Errorf("record %d: %v", i, r)
		}
	}
	if len(k.records) != 5 {
		t.Errorf("%d records", len(k.records))
	}
}

// TestQuietFoldsAreWritten: what was folded is told although nothing follows; and from many sides at once nothing is lost.
func TestQuietFoldsAreWritten(t *testing.T) {
	f, k := refusals()
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = f.Run(ctx) })
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 500 {
				f.Refuse(Refusal{Alike: Alike{Code: "c", Key: fmt.Sprint(i % 3)}, Admission: "a", At: time.Now()})
			}
		})
	}
	all.Wait()
	until(t, "the records tell of 4000 refusals", func() bool { return k.refusals() == 4000 })
	stop()
	run.Wait()
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "rejected_door_d")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	names := []string{segmentName(5, 1), segmentName(5, 2), segmentName(6, 1), segmentName(6, 2)}
	for _, name := range append(names, "checkpoint.key") {
		if err := os.WriteFile(filepath.Join(folder, name), make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left := func(most int64) string {
		if err := Prune(dir, RejectedSource("d"), most); err != nil {
			t.Fatal(err)
		}
		list, err := segments(folder)
		if err != nil {
			t.Fatal(err)
		}
		var out string
		for _, s := range list {
			out += fmt.Sprintf("%d-%d ", s.epoch, s.number)
		}
		return out
	}
	for _, c := range []struct {
		most int64
		want string
	}{{400, "5-1 5-2 6-1 6-2 "}, {399, "5-2 6-1 6-2 "}, {150, "6-2 "}, {0, "6-2 "}} {
		if got := left(c.most); got != c.want {
			t.Errorf("at most %d bytes: %s, want %s", c.most, got, c.want)
		}
	}
	if Prune(dir, "..", 0) == nil || Prune(dir, "absent", 0) == nil {
		t.Error("no error of a source that has no folder")
	}
}

func BenchmarkRefuse(b *testing.B) {
	f := NewRefusals(RefusalsConfig{Journal: &kept{}, Source: RejectedSource("d"), Epoch: 7})
	r := Refusal{Alike: Alike{Code: "invalid_api_key", Status: 401, Reason: "unknown", Revision: 3}, Admission: "a", Operation: "chat", At: time.Now()}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			f.Refuse(r)
		}
	})
}
