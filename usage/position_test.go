package usage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// A damaged or lost note of how far it had come means that all is shipped again.
func TestPosition(t *testing.T) {
	dir := t.TempDir()
	if p, err := loadPosition(dir); err != nil || p != (position{}) {
		t.Errorf("%v, %v", p, err)
	}
	want := position{1_700_000_000, 3, 12345}
	if err := savePosition(dir, want); err != nil {
		t.Fatal(err)
	}
	if p, err := loadPosition(dir); err != nil || p != want {
		t.Errorf("%v, %v", p, err)
	}
	for _, bad := range []string{"", "{", `{"epoch":-1}`, `{"offset":-1}`, `{"segment":-1}`} {
		if err := os.WriteFile(filepath.Join(dir, positionFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := loadPosition(dir); err == nil || p != (position{}) {
			t.Errorf("%q: %v", bad, p)
		}
	}
}

// A position in a segment that is gone, or behind the end of one that a power loss has cut, goes on with what comes next.
func TestCursorBesideTheJournal(t *testing.T) {
	dir := t.TempDir()
	s := requestJournal(t, dir, 0, Options{SegmentBytes: 1})
	for i := range 3 {
		appendRequests(t, s, i, 1) // a segment each
	}
	epoch, folder := s.Stats().Epoch, filepath.Join(dir, "door_main")
	for _, c := range []struct {
		name string
		at   position
		want int
	}{
		{"from the start", position{}, 6},
		{"an older epoch", position{epoch - 1, 9, 100}, 6},
		{"behind the end", position{epoch, 1, 1 << 40}, 4},
		{"a newer epoch", position{epoch + 1, 1, 0}, 0},
	} {
		u, n := cursor{dir: folder, at: c.at}, 0
		for chunk := newChunk(2 * MaxLine); ; n += len(chunk.events) {
			some, err := u.next(chunk)
			if err != nil {
				t.Fatal(err)
			}
			if !some {
				break
			}
		}
		if n != c.want {
			t.Errorf("%s: %d records, want %d", c.name, n, c.want)
		}
	}
}

// What was written after the segments were listed may not be on disk yet, unless nothing more is written to the segment.
func TestCursorTakesWhatIsSynced(t *testing.T) {
	dir := t.TempDir()
	s := requestJournal(t, dir, 1, Options{})
	list, err := segments(filepath.Join(dir, "door_main"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	appendRequests(t, s, 1, 1)
	for finished, want := range map[bool]int{false: 2, true: 4} {
		u, c := cursor{}, newChunk(2*MaxLine)
		if n, err := u.fill(c, list[0], finished); err != nil || len(c.events) != want || !finished && n != list[0].size {
			t.Errorf("finished %v: %d records in %d bytes of %d, %v", finished, len(c.events), n, list[0].size, err)
		}
	}
}

// What is taken is a place, and stays the same when it is written again; beside an error there is none.
func FuzzParsePosition(f *testing.F) {
	f.Add(`{"epoch":1700000000,"segment":3,"offset":12345}`)
	f.Add(`{"epoch":1,"segment":1,"offset":-1}`)
	f.Add(`{"epoch":1e3,"segment":9223372036854775808}`)
	f.Add(`{"Offset":7,"offset":null} {}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePosition([]byte(text))
		if err != nil {
			if p != (position{}) {
				t.Errorf("%q: %+v beside %v", text, p, err)
			}
			return
		}
		if p.Segment < 0 || p.Offset < 0 {
			t.Errorf("%q: %+v", text, p)
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parsePosition(b); err != nil || again != p {
			t.Errorf("%q: %+v, then %+v, %v", text, p, again, err)
		}
	})
}
