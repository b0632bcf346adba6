package policy

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

func numbered(n uint64) *policyv1.Set {
	set := randomSet(rand.New(rand.NewPCG(n, n)), 5)
	set.Revision = &policyv1.Revision{Number: n, Digest: Digest(set)}
	return inOrder(set)
}

// inOrder is a set with its resources in the order of a cut.
func inOrder(set *policyv1.Set) *policyv1.Set {
	out, err := NewCut(set).Set()
	if err != nil {
		panic(err)
	}
	return out
}

// Save keeps a set as a keeper does that was not there before.
func Save(dir string, set *policyv1.Set) error { return NewKeeper(dir).Save(NewCut(set)) }

// loadSet is Load, of a set.
func loadSet(dir string) (*policyv1.Set, error) {
	c, err := Load(dir)
	if c == nil {
		return nil, err
	}
	set, bad := c.Set()
	return set, errors.Join(err, bad)
}

func mustSave(t *testing.T, dir string, n uint64) *policyv1.Set {
	t.Helper()
	set := numbered(n)
	if err := Save(dir, set); err != nil {
		t.Fatal(err)
	}
	return set
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if set, err := loadSet(dir); set != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("of no folder: %v, %v", set, err)
	}
	for n := uint64(1); n <= 12; n++ {
		want := mustSave(t, dir, n)
		got, err := loadSet(dir)
		if err != nil || !proto.Equal(got, want) {
			t.Fatalf("revision %d: %v, %v", n, got, err)
		}
	}
	if got := files(t, dir); len(got) != 2 || got[0] != savedName(11) || got[1] != savedName(12) {
		t.Errorf("the newest and the one before are kept, not %v", got)
	}
	info, err := os.Stat(filepath.Join(dir, savedName(12)))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: a policy is for its owner alone", info.Mode(), err)
	}
}

func TestSaveRefuses(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 5)
	if err := Save(dir, &policyv1.Set{}); err == nil {
		t.Error("a set without a number was kept")
	}
	if err := Save(dir, numbered(4)); err == nil || !strings.Contains(err.Error(), "older than revision 5") {
		t.Errorf("going back: %v", err)
	}
	if err := Save(filepath.Join(dir, savedName(5)), numbered(6)); err == nil {
		t.Error("a file is no folder")
	}
	if got, err := loadSet(dir); err != nil || got.Revision.Number != 5 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestDamage breaks the newest copy in every way that a disk or a person might.
func TestDamage(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"empty":        func([]byte) []byte { return nil },
		"no header":    func(b []byte) []byte { return b[len(header(savedFormat, nil)):] },
		"half":         func(b []byte) []byte { return b[:len(b)/2] },
		"header cut":   func(b []byte) []byte { return b[:10] },
		"one bit":      func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"checksum":     func(b []byte) []byte { b[len(savedFormat)] ^= 1; return b },
		"longer":       func(b []byte) []byte { return append(b, 0) },
		"other format": func(b []byte) []byte { return append([]byte("x"), b...) },
		"not a set":    func([]byte) []byte { return append(header(savedFormat, []byte("\xff\xff")), "\xff\xff"...) },
		"another's": func([]byte) []byte {
			body, _ := proto.Marshal(numbered(9))
			return append(header(savedFormat, body), body...)
		},
		"only a checksum": func([]byte) []byte { return header(savedFormat, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			one := mustSave(t, dir, 1)
			mustSave(t, dir, 2)
			path := filepath.Join(dir, savedName(2))
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(data), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := loadSet(dir)
			var fb *Damaged
			if !errors.As(err, &fb) || fb.Newest != 2 || fb.Used != 1 || !proto.Equal(got, one) {
				t.Fatalf("%v, %v", got, err)
			}
			if !strings.Contains(err.Error(), "revision 2 on disk is damaged, taking revision 1: ") || !strings.Contains(err.Error(), path) {
				t.Errorf("%v", err)
			}
			// The next revision keeps the good one before it, not the damaged one.
			mustSave(t, dir, 3)
			if f := files(t, dir); len(f) != 2 || f[0] != savedName(1) {
				t.Errorf("%v", f)
			}
		})
	}
}

func TestAllDamaged(t *testing.T) {
	dir := t.TempDir()
	for n := range uint64(2) {
		mustSave(t, dir, n+1)
	}
	for _, f := range files(t, dir) {
		if err := os.Truncate(filepath.Join(dir, f), 20); err != nil {
			t.Fatal(err)
		}
	}
	set, err := loadSet(dir)
	var d *Damaged
	if set != nil || !errors.As(err, &d) || d.Newest != 2 || d.Used != 0 || strings.Count(err.Error(), "damaged") != 2 {
		t.Errorf("%v, %v", set, err)
	}
}

// TestCrashLeftovers: what a crash leaves half written is never read, and goes with the next save.
func TestCrashLeftovers(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 1)
	for _, name := range []string{".new-policy-123", "policy-7.pb", "policy-x.pb", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := loadSet(dir); err != nil || got.Revision.Number != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	mustSave(t, dir, 2)
	for _, f := range files(t, dir) {
		if strings.HasPrefix(f, ".new-") {
			t.Errorf("%s is still there", f)
		}
	}
}
