package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Folders of dead shims are swept; one of a living shim, a young one and one of something else stay.
func TestFolders(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	now := time.Now()
	living, err := newFolder(now)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := newFolder(now)
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close()
	other := filepath.Join(os.TempDir(), "something")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	if sweep(now); !exists(dead.path) {
		t.Error("a young folder is swept")
	}
	if sweep(now.Add(time.Hour)); exists(dead.path) || !exists(living.path) || !exists(other) {
		t.Errorf("dead %v, living %v, other %v", exists(dead.path), exists(living.path), exists(other))
	}
	if info, err := os.Stat(living.path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	living.remove()
	if exists(living.path) {
		t.Error("not removed")
	}
	t.Setenv("TMPDIR", t.TempDir()+"/"+strings.Repeat("x", 100))
	if err := os.Mkdir(os.TempDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := newFolder(now); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("%v", err)
	}
}
