package balance

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/spokegate/spokegate/usage"
)

// TestSpools journals a history for real, and alters in it what only one record knows, with a check sum that fits.
func TestSpools(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(1).live(200)
	for source, list := range w.journal {
		s, err := usage.Open(dir, source, usage.Options{Checkpoint: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if r.Kind != usage.KindCheckpoint { // which the journal makes by itself
				s.Append(proto.CloneOf(r))
			}
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if r := auditSpools(t, dir); !r.Balanced || r.Total.Admitted != 200 || r.Total.Usage != 200 {
		t.Fatalf("%+v, %v", r.Total, r.Problems)
	}
	files, err := filepath.Glob(filepath.Join(dir, "door_a", "*.log"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	body := bytes.Replace(bytes.TrimSpace(lines[20][9:]), []byte(`"ended_at":`), []byte(`"ended_at" :`), 1)
	lines[20] = fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)), body)
	if err := os.WriteFile(files[0], bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	r := auditSpools(t, dir)
	if len(r.Problems) != 1 || r.Problems[0].Kind != Altered || r.Problems[0].Source != "door/a" || r.Problems[0].Sequence != 21 {
		t.Errorf("%v", r.Problems)
	}
	lines[20][0] ^= 1 // and now a check sum that does not fit
	if err := os.WriteFile(files[0], bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := auditSpools(t, dir); r.Counts[Damaged] != 1 || r.Counts[Gap] != 1 || r.Balanced {
		t.Errorf("%v", r.Problems)
	}
	// The end of the journal is cut off: the checkpoint of the end, which is gone too, cannot tell; the admissions do.
	if err := os.WriteFile(files[0], bytes.Join(lines[:len(lines)-12], nil), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := auditSpools(t, dir); r.Counts[MissingUsage] == 0 {
		t.Errorf("%v", r.Counts)
	}
}

func auditSpools(t *testing.T, dir string) *Report {
	t.Helper()
	evidence, err := OpenSpools(dir)
	if err != nil {
		t.Fatal(err)
	}
	a := New(worldOptions(t), evidence.Traits())
	defer a.Close()
	var last int64
	err = evidence.Read(context.Background(), a.Add, func(done, total int64) {
		if done < last || done > total {
			t.Errorf("progress: %d after %d, of %d", done, last, total)
		}
		last = done
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.Balance(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
