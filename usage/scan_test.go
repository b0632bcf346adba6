package usage

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// TestScan delivers what is there as it is there: twice what is twice, damage by its place, and no unfinished line.
func TestScan(t *testing.T) {
	dir := t.TempDir()
	s := requestJournal(t, dir, 3, Options{})
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(dir + "/door_main/*.log")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	long := strings.Repeat("x", 3*MaxLine) + "\n"
	foreign := appendLine(nil, &usagev1.Record{Id: "x", Source: "door/other", Epoch: s.Stats().Epoch, Sequence: 9})
	text := string(lines[0]) + string(lines[0]) + "ffffffff {}\n" + long + string(foreign) + string(lines[1]) + string(lines[2][:20])
	if err := os.WriteFile(files[0], []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var told []string
	err = Scan(dir, func(l Line) error {
		switch {
		case l.File != files[0] || l.Offset < 0 || l.Offset > int64(len(text)):
			t.Errorf("%s, byte %d", l.File, l.Offset)
		case l.Err != nil:
			told = append(told, l.Err.Error()[:12])
		case !bytes.HasPrefix([]byte(text[l.Offset:]), appendLine(nil, l.Record)):
			t.Errorf("%s is not at byte %d", l.Record.Id, l.Offset)
		default:
			told = append(told, l.Record.Id)
		}
		return nil
	})
	want := "a0000000/admitted a0000000/admitted the check su a line of 19 record \"x\" i a0000000/usage"
	if got := strings.Join(told, " "); err != nil || got != want {
		t.Errorf("%v, %s; want %s", err, got, want)
	}
	enough := errors.New("enough")
	if err := Scan(dir, func(Line) error { return enough }); err != enough {
		t.Errorf("the caller's error came back as %v", err)
	}
	if err := Scan(dir+"/nowhere", func(Line) error { return nil }); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

func TestWins(t *testing.T) {
	record := func(kind, counted, outcome string, sequence uint64, anomalies ...string) *usagev1.Record {
		return &usagev1.Record{Kind: kind, CountedFrom: counted, Outcome: outcome, Epoch: 1, Sequence: sequence, Anomalies: anomalies}
	}
	original := record(KindUsage, CountedEngine, OutcomeComplete, 1)
	unserved := record(KindUsage, CountedNone, OutcomeNotServed, 1)
	unmetered := record(KindUsage, CountedNone, OutcomeComplete, 9, "unmetered")
	repair := record(KindUsage, CountedEngine, OutcomeComplete, 2, Repaired)
	later := record(KindUsage, CountedEngine, OutcomeComplete, 3, "cached_above_prompt", Repaired)
	for _, c := range []struct {
		name    string
		r, over *usagev1.Record
		want    bool
	}{
		{"a late original over its repair", original, repair, true},
		{"a repair over its original", repair, original, false},
		{"a repair over an original that nobody served", repair, unserved, false},
		{"a repair over what the meter missed", repair, unmetered, true},
		{"what the meter missed over its repair", unmetered, repair, false},
		{"the later of two repairs", later, repair, true},
		{"the earlier of two repairs", repair, later, false},
		{"an original over another", original, original, false},
		{"an original over one that the meter missed", original, unmetered, true},
	} {
		if got := Wins(c.r, c.over); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestReadOnce delivers of each id the record that counts.
func TestReadOnce(t *testing.T) {
	dir := t.TempDir()
	record := func(id, counted string, anomalies ...string) *usagev1.Record {
		return &usagev1.Record{Id: id, Kind: KindUsage, Outcome: OutcomeComplete, CountedFrom: counted, Anomalies: anomalies}
	}
	for source, list := range map[string][]*usagev1.Record{
		"door/main": {record("whole", CountedEngine), record("late", CountedEngine), record("unmetered", CountedNone, Unmetered)},
		"repair/x": {record("lost", CountedEngine, Repaired), record("late", CountedEngine, Repaired),
			record("unmetered", CountedEngine, Repaired), record("lost", CountedEngine, Repaired, "later")},
	} {
		s, err := Open(dir, source, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			s.Append(r)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	_, err := ReadOnce(dir, func(r *usagev1.Record) error {
		got = append(got, r.Id+" of "+r.Source+" "+strings.Join(r.Anomalies, ","))
		return nil
	})
	want := "whole of door/main ; late of door/main ; lost of repair/x repaired,later; unmetered of repair/x repaired"
	if strings.Join(got, "; ") != want || err != nil {
		t.Errorf("%v; got %s", err, strings.Join(got, "; "))
	}
	enough := errors.New("enough")
	if _, err := ReadOnce(dir, func(*usagev1.Record) error { return enough }); err != enough {
		t.Errorf("the caller's error came back as %v", err)
	}
}
