package main

import (
	"bytes"
	"crypto/tls"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
	"github.com/spokegate/spokegate/hub/api"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
	"github.com/spokegate/spokegate/xds/push"
)

// TestSpokeStatusIsTold in a table, and below it what is wrong with whom.
func TestSpokeStatusIsTold(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	st := api.Status{Revision: 9, At: ago(time.Minute), Spokes: []api.SpokeStatus{
		{Name: "east", Doors: []api.Replica{
			{Spoke: "east", Door: "a", Connected: true, Revision: 9, HeldSince: ago(50 * time.Second), Reported: ago(0), Workers: 3, WorkersReady: 2,
				SpoolBytes: 3 << 20, Version: "1.2", Problems: []string{"spool usage: Kafka is away"}, Revoked: []string{"shop"}},
			{Spoke: "east", Door: "b", Connected: true, Revision: 8, HeldSince: ago(time.Hour), Refused: 9, Reason: "teams[x]: \x1b[31mno", Reported: ago(0),
				LimitsLocal: true, Limits: "by itself, Redis is away", SpoolLost: 1, Version: "1.1"},
			{Spoke: "east", Door: "c", Connected: true, Revision: 6, HeldSince: ago(3 * 24 * time.Hour)},
			{Spoke: "east", Door: "d", Since: now.Add(-2 * time.Minute), Revision: 7, Reported: ago(time.Hour), FromDisk: true, Version: "1.1",
				Limits: inMemory{}.Status()},
		}},
		{Name: "west"},
	}}
	var out bytes.Buffer
	if err := printStatus(&out, st, now); err != nil {
		t.Fatal(err)
	}
	want := `revision 9, 2026-11-29 11:59:00
SPOKE  DOOR  STATE            REVISION  HELD   WORKERS  SPOOL    LIMITS  VERSION
east   a     in step          9         50s    2 of 3   3.0 MiB  shared  1.2
east   b     refuses 9        8         1h0m   0 of 0   0 B      local   1.1
east   c     3 behind         6         3d0h   -        -        -       -
east   d     away for 2m0s    7         -      0 of 0   0 B      local   1.1
west   -     never connected  -         -      -        -        -       -
east/a reports: spool usage: Kafka is away
east/a refuses shop by itself
east/b refuses revision 9: teams[x]: ` + "\uFFFD" + `[31mno
east/b counts limits by itself: by itself, Redis is away
east/b has lost 1 usage record
east/d acts on what it had on its disk
`
	if got := squeezed(out.String()); got != squeezed(want) {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if err := behind(st); err == nil || err.Error() != "3 doors do not hold revision 9" {
		t.Errorf("behind: %v", err)
	}
}

// squeezed has one blank where a table has several.
func squeezed(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestDifferencesAreToldByMember(t *testing.T) {
	for _, c := range []struct {
		before, after string
		want          []string
	}{
		{``, `{"name": "x", "limits": [{"burst": 1}]}`, []string{`limits: [{"burst":1}]`, "name: x"}},
		{`{"a": 1, "b": "x"}`, `{"a": 1, "b": "y", "c": true}`, []string{"b: x → y", "c: true"}},
		{`{"a": {"b": 1, "c": 2}}`, `{"a": {"b": 1}}`, []string{"a.c: 2 → gone"}},
		{`{"l": ["a", "b"]}`, `{"l": ["b"]}`, []string{`l: ["a","b"] → ["b"]`}},
		{`{"l": [{"a": 1}, {"a": 2}]}`, `{"l": [{"a": 1}, {"a": 3, "b": 0}]}`, []string{"l[1].a: 2 → 3", "l[1].b: 0"}},
		{`{"l": [{"a": 1}]}`, `{"l": []}`, []string{`l: [{"a":1}] → []`}},
		{`{"n": 1.50}`, `{"n": 1.5}`, []string{"n: 1.50 → 1.5"}},
		{`{"n": 1}`, `{"n": "1"}`, []string{`n: 1 → "1"`}},
		{`{"n": 1}`, `{"n": 1}`, nil},
	} {
		if got := memberChanges("", parsed([]byte(c.before)), parsed([]byte(c.after))); !slices.Equal(got, c.want) {
			t.Errorf("%s to %s: got %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

func TestFlagsMayStandAnywhere(t *testing.T) {
	for line, want := range map[string]string{
		"a -n 1 b": "a b 1", "-n 1 a b": "a b 1", "a b -n 1": "a b 1", "a -n=1": "a 1", "a -- -n": "a -n 0", "-- -n a": "-n a 0", "a": "a 0",
	} {
		f := flag.NewFlagSet("test", flag.ContinueOnError)
		n := f.String("n", "0", "")
		given, err := parseMixed(f, strings.Fields(line), "A", "[B]")
		if got := strings.Join(append(given, *n), " "); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", line, got, err, want)
		}
	}
}

// TestTheAPIsCertificateIsRenewed: a new file is taken up, and a broken one leaves the old in force.
func TestTheAPIsCertificateIsRenewed(t *testing.T) {
	ca, dir := mtlstest.New(t), t.TempDir()
	f := ca.IssueInto(t, dir, nil, "hub")
	served := &certFile{cert: f.Cert, key: f.Key, log: slog.New(slog.DiscardHandler)}
	serial := func(want *tls.Certificate) *tls.Certificate {
		t.Helper()
		got, err := served.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		if want != nil && got != want {
			t.Errorf("another certificate is served: %v", got.Leaf.SerialNumber)
		}
		return got
	}
	first := serial(nil)
	serial(first)
	if err := os.WriteFile(f.Cert, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	later(t, f.Cert, 1)
	serial(first)
	ca.IssueInto(t, dir, nil, "hub")
	later(t, f.Cert, 2)
	if second := serial(nil); second.Leaf.SerialNumber.Cmp(first.Leaf.SerialNumber) == 0 {
		t.Error("the renewed certificate is not taken up")
	}
	missing := &certFile{cert: filepath.Join(dir, "none"), key: f.Key}
	if _, err := missing.get(nil); err == nil || !strings.Contains(err.Error(), "-tls-cert") {
		t.Errorf("a certificate that is not there: %v", err)
	}
}

// later gives a file a time that no one before had.
func later(t *testing.T, file string, n time.Duration) {
	t.Helper()
	at := time.Now().Add(n * time.Minute)
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}

// TestOneDoorSpeaksForItsSpoke: one that is there, and knows of GPUs if any does.
func TestOneDoorSpeaksForItsSpoke(t *testing.T) {
	gpus := &hubv1.Report{Gpus: []*hubv1.Gpu{{Type: "h100", Capacity: 8, Free: 4}}}
	got := ""
	for _, d := range speakers([]push.Holder{
		{Spoke: "east", Door: "a", Report: gpus}, {Spoke: "east", Door: "b", Connected: true}, {Spoke: "east", Door: "c", Connected: true, Report: gpus},
		{Spoke: "east", Door: "d", Connected: true, Report: gpus}, {Spoke: "north", Door: "a"}, {Spoke: "west", Door: "a", Connected: true},
	}) {
		got += d.Spoke + "/" + d.Door + " "
	}
	if got != "east/c west/a " {
		t.Errorf("got %s", got)
	}
}
