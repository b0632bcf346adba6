package xds

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// TestWatch plays looks at a file. "*" after a look: it is offered.
func TestWatch(t *testing.T) {
	for name, looks := range map[string]string{
		"new content waits for a second look":        "a a* a a b b* b",
		"content that stands for long does not wait": "=a* =a =b*",
		"truncate, then write, seen in between":      "a a* - b b* b",
		"truncate, and stop there":                   "a a* - -* - b b*",
		"written in pieces":                          "a a* - b bc bcd bcd*",
		"A, bad B, A again":                          "=a* =b* =a* =a",
		"A, half of B, A again":                      "=a* b a a =a",
		"gone, and back":                             "=a* ! !* ! a a*",
		"gone for a moment":                          "=a* ! a a",
		"replaced by an older file":                  "=a* =b*",
	} {
		t.Run(name, func(t *testing.T) {
			var w watch
			for i, look := range strings.Fields(looks) {
				content, offered := strings.CutSuffix(look, "*")
				content, still := strings.CutPrefix(content, "=")
				v := view{content: []byte(strings.Trim(content, "-")), still: still}
				if content == "!" {
					v = view{err: os.ErrNotExist}
				}
				if got := w.due(v); got != offered {
					t.Fatalf("look %d, %s: offered %v", i, look, got)
				}
			}
		})
	}
}

func TestWatchTriesAgain(t *testing.T) {
	var w watch
	a, b := view{content: []byte("a"), still: true}, view{content: []byte("b"), still: true}
	for round := range 3 {
		if !w.due(a) {
			t.Fatalf("round %d: not offered", round)
		}
		w.retry()
		for i := 1; i < retryAfter; i++ {
			if w.due(a) {
				t.Fatalf("round %d: offered again after %d looks", round, i)
			}
		}
	}
	if !w.due(a) || !w.due(b) || w.due(b) {
		t.Fatal("a change while waiting is offered at once, and once")
	}
	for range 3 * retryAfter {
		if w.due(b) {
			t.Fatal("the wait of an older content goes on")
		}
	}
}

// TestFileIsReadWhenItMoved: and also while its time is so young that it could change and keep it.
func TestFileIsReadWhenItMoved(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	dir := t.TempDir()
	path, other := filepath.Join(dir, "policy"), filepath.Join(dir, "other")
	write := func(path, content string, at time.Time) {
		if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	f := NewFile(path, slog.New(slog.DiscardHandler))
	for _, step := range []struct {
		name string
		do   func()
		next bool // read at the look after too
	}{
		{"none yet", func() {}, true},
		{"an old file", func() { write(path, "a", old) }, false},
		{"later", func() { write(path, "b", old.Add(1)) }, false},
		{"earlier", func() { write(path, "b", old) }, false},
		{"longer", func() { write(path, "bc", old) }, false},
		{"another with the same time and size", func() { write(other, "de", old); _ = os.Rename(other, path) }, false},
		{"young", func() { write(path, "de", time.Now()) }, true},
		{"of the future", func() { write(path, "de", time.Now().Add(time.Hour)) }, true},
		{"old again", func() { write(path, "de", old) }, false},
		{"a folder", func() { _ = os.Remove(path); _ = os.Mkdir(path, 0o700) }, true},
	} {
		step.do()
		for i, want := range []bool{true, step.next} {
			info, err := os.Stat(path)
			if got := f.moved(info, err); got != want {
				t.Errorf("%s, look %d: read is %v", step.name, i, got)
			}
			f.look(info, err)
		}
	}
}

// TestFileThatIsNone: what is no readable file is refused with its path, and nothing hangs or fills memory.
func TestFileThatIsNone(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                           "not a regular file",
		"/dev/null":                   "not a regular file",
		filepath.Join(dir, "nothing"): "no such file",
		large:                         "a policy file may have 16777216",
	} {
		f := NewFile(path, slog.New(slog.DiscardHandler))
		f.Every = 1
		ctx, cancel := context.WithCancel(context.Background())
		var got Candidate
		if err := f.Run(ctx, nil, func(c Candidate) { got = c; cancel() }); err != nil {
			t.Fatal(err)
		}
		if got.Cut != nil || got.Err == nil || !strings.Contains(got.Err.Error(), want) || !strings.Contains(got.Err.Error(), path) || got.From != "file "+path {
			t.Errorf("%s: %+v", path, got)
		}
		if path == large && !errors.As(got.Err, &policy.Problems{}) {
			t.Errorf("%T", got.Err)
		}
	}
}
