package balance

import (
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// TestRefusalsAreOutside: a journal of refusals may forget, so none of it is evidence.
func TestRefusalsAreOutside(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		spool, err := usage.Open(dir, usage.RejectedSource("main"), usage.Options{Checkpoint: time.Hour, SegmentBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		refusals := usage.NewRefusals(usage.RefusalsConfig{Journal: spool, Source: usage.RejectedSource("main"), Epoch: spool.Stats().Epoch})
		for range 10 {
			refusals.Refuse(usage.Refusal{Alike: usage.Alike{Code: "invalid_api_key"}, Admission: "a", At: time.Now()})
			if err := spool.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		refusals.Close()
		if err := spool.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := usage.Prune(dir, usage.RejectedSource("main"), 2000); err != nil {
		t.Fatal(err)
	}
	left, evidence := 0, 0
	if _, err := usage.Read(dir, func(*usagev1.Record) error { left++; return nil }); err != nil || left == 0 || left >= 30 {
		t.Fatalf("%v: %d records are left; the test wants some, and not all", err, left)
	}
	spools, err := OpenSpools(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := spools.Read(t.Context(), func(Item) error { evidence++; return nil }, nil); err != nil || evidence > 0 {
		t.Errorf("%v: %d records of refusals are evidence", err, evidence)
	}
}
