package usage

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestLines goes on from every place, in steps of every size, over several segments and epochs, and finds each line once.
func TestLines(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // two epochs
		s := requestJournal(t, dir, 0, Options{SegmentBytes: 2000})
		for i := range 8 { // a segment ends between two batches
			appendRequests(t, s, i, 1)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	if err := Scan(dir, func(l Line) error { want = append(want, l.Record.Id); return l.Err }); err != nil {
		t.Fatal(err)
	}
	folders, err := Folders(dir)
	if err != nil || !slices.Equal(folders, []string{dir + "/door_main"}) {
		t.Fatal(folders, err)
	}
	if files, _ := filepath.Glob(folders[0] + "/*.log"); len(files) < 4 {
		t.Fatalf("%d segments: too few to prove anything", len(files))
	}
	for _, step := range []int{1, 2, 3, 7, 100} {
		var got []string
		for place, read := "", step; read == step; {
			var err error
			read, err = Lines(folders[0], place, step, func(l Line, behind string) error {
				got, place = append(got, l.Record.Id), behind
				return l.Err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in steps of %d: %q, want %q", step, got, want)
		}
	}
}

// TestLinesAtTheEdge: a line that is not finished is delivered when it is, a damaged one is told, a bad place is an error.
func TestLinesAtTheEdge(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "door_main")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, segmentName(1, 1))
	r := request(0)[0]
	r.Source, r.Epoch, r.Sequence = "door/main", 1, 1
	line := appendLine(nil, r)
	place := ""
	read := func(text string) (ids []string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Lines(dir, place, 10, func(l Line, behind string) error {
			place = behind
			if l.Err != nil {
				ids = append(ids, "damaged")
			} else {
				ids = append(ids, l.Record.Id)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	if got := read(string(line[:30])); got != nil || place != "" {
		t.Errorf("an unfinished line: %q, %q", got, place)
	}
	if got := read(string(line) + "nonsense\n" + string(line[:9])); !slices.Equal(got, []string{r.Id, "damaged"}) {
		t.Errorf("%q", got)
	}
	if got := read(string(line) + "nonsense\n" + string(line)); !slices.Equal(got, []string{r.Id}) {
		t.Errorf("the line that was finished: %q", got)
	}
	if _, err := Lines(dir, "somewhere", 1, nil); err == nil {
		t.Error("a bad place is taken")
	}
	if n, err := Lines(dir+"x", "", 1, nil); n != 0 || err != nil {
		t.Errorf("a folder that is gone: %d, %v", n, err)
	}
}
