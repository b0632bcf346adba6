package policy

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spokegate/spokegate/identity"
)

func revokeIn(dir, key string) error {
	return EditRevoked(dir, func(list []Revocation) ([]Revocation, error) {
		return append(list, Revocation{Key: key, At: t0}), nil
	})
}

func revokedKeys(t *testing.T, dir string) []string {
	t.Helper()
	list, err := LoadRevoked(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range list {
		if r.At.IsZero() {
			t.Errorf("%s has no time", r.Key)
		}
		out = append(out, r.Key)
	}
	return out
}

func TestRevokedRoundTrip(t *testing.T) {
	dir := t.TempDir()
	if list, err := LoadRevoked(dir); list != nil || err != nil {
		t.Fatalf("of no file: %v, %v", list, err)
	}
	want := []string{"alice", hashA, "okta:alice@example.com", SubjectID("okta", "auth0|5"), strings.Repeat("x", 63)}
	for _, k := range want {
		if err := revokeIn(dir, k); err != nil {
			t.Fatal(err)
		}
	}
	if got := revokedKeys(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	info, err := os.Stat(RevokedPath(dir))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: the list is for its owner alone", info.Mode(), err)
	}
	if f := files(t, dir); len(f) != 1 {
		t.Errorf("more is left than the list: %v", f)
	}
	mustSave(t, dir, 1)
	mustSave(t, dir, 2)
	mustSave(t, dir, 3)
	if got := revokedKeys(t, dir); !slices.Equal(got, want) {
		t.Errorf("keeping policies changed the list: %v", got)
	}
	empty := func([]Revocation) ([]Revocation, error) { return nil, nil }
	if err := EditRevoked(dir, empty); err != nil || len(revokedKeys(t, dir)) != 0 {
		t.Errorf("emptied: %v", err)
	}
}

func TestRevokedEditFails(t *testing.T) {
	dir := t.TempDir()
	if err := revokeIn(dir, "alice"); err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	if err := EditRevoked(dir, func([]Revocation) ([]Revocation, error) { return nil, no }); !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
	many := func([]Revocation) ([]Revocation, error) { return make([]Revocation, maxRevoked+1), nil }
	if err := EditRevoked(dir, many); err == nil || !strings.Contains(err.Error(), "room for 100000") {
		t.Errorf("%v", err)
	}
	if got := revokedKeys(t, dir); !slices.Equal(got, []string{"alice"}) {
		t.Errorf("a failed edit changed the list: %v", got)
	}
	if err := revokeIn(filepath.Join(dir, "typo"), "alice"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// TestRevokedDamaged: a list that may have lost a key is no list.
func TestRevokedDamaged(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"empty":       func([]byte) []byte { return nil },
		"half":        func(b []byte) []byte { return b[:len(b)/2] },
		"last line":   func(b []byte) []byte { return b[:len(b)-len("2026-01-02T03:04:05Z bob\n")] },
		"one bit":     func(b []byte) []byte { b[len(b)-3] ^= 1; return b },
		"line added":  func(b []byte) []byte { return append(b, "2026-01-02T03:04:05Z carol\n"...) },
		"by hand":     func([]byte) []byte { return []byte("alice\n") },
		"new format":  func(b []byte) []byte { return append([]byte("x"), b...) },
		"other words": func([]byte) []byte { return append(header(revokedFormat, []byte("now alice\n")), "now alice\n"...) },
		"other key": func([]byte) []byte {
			l := "2026-01-02T03:04:05Z a b\n"
			return append(header(revokedFormat, []byte(l)), l...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(revokeIn(dir, "alice"), revokeIn(dir, "bob")); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(RevokedPath(dir))
			if err != nil {
				t.Fatal(err)
			}
			damaged := damage(data)
			if err := os.WriteFile(RevokedPath(dir), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if list, err := LoadRevoked(dir); list != nil || err == nil || !strings.Contains(err.Error(), RevokedPath(dir)) {
				t.Errorf("%v, %v", list, err)
			}
			if err := revokeIn(dir, "carol"); err == nil {
				t.Error("a damaged list was written over")
			}
			if now, _ := os.ReadFile(RevokedPath(dir)); string(now) != string(damaged) {
				t.Error("a failed edit changed the file")
			}
		})
	}
}

func TestParseRevocable(t *testing.T) {
	secret, h := identity.NewKey()
	for text, want := range map[string]string{
		"alice-laptop": "alice-laptop", strings.ToUpper(h.String()): h.String(), "okta:bob": "okta:bob",
		SubjectID("okta", "a b"): SubjectID("okta", "a b"),
		"":                       "", "two words": "", "okta:": "", ":bob": "", "a:b:c": "", "okta:~": "", "a\nb": "", "-x": "", "okta:~~x": "",
		secret: "", secret + "x": "", "Bearer " + secret: "",
	} {
		got, err := ParseRevocable(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if err != nil && strings.Contains(err.Error(), secret[6:20]) {
			t.Errorf("repeats the key: %v", err)
		}
	}
}

// TestRevokeOverSnapshot: a key by its id and by its hash, a subject, and who is not there.
func TestRevokeOverSnapshot(t *testing.T) {
	s := compiled(t, withIssuer(randomSet(rand.New(rand.NewPCG(1, 9)), 4)))
	hash := s.keyByID("k1").hash
	over := s.Revoke([]Revocation{{Key: "k0"}, {Key: hash.String()}, {Key: "okta:bob"}, {Key: "later"}, {Key: strings.Repeat("0", 64)}})
	if over.Digest() != s.Digest() || over.Revision() != s.Revision() || over.Since() != s.Since() || over.Keys() != s.Keys() {
		t.Error("it tells another revision")
	}
	for id, want := range map[string]bool{"k0": true, "k1": true, "k2": false, "okta:bob": true, "okta:alice": false, "okta:eve": true, "later": true, "gone:bob": true, "": true} {
		if got := over.Revoked(id); got != want {
			t.Errorf("%q revoked: %v", id, got)
		}
		if k := s.keyByID(id); k != nil && (over.Key(k.hash).Refused(t0) == "revoked") != want {
			t.Errorf("%s is refused: %q", id, over.Key(k.hash).Refused(t0))
		}
		if s.keyByID(id) != nil && s.Revoked(id) {
			t.Errorf("%s is revoked in the snapshot below", id)
		}
	}
	i := over.Issuers()[0]
	if over.Subject(i, "bob", "t0", nil).Refused(t0) != "revoked" || over.Subject(i, "alice", "t0", nil).Refused(t0) != "" {
		t.Error("a subject of the list is not refused, or another is")
	}
	if s.Revoke(nil) != s {
		t.Error("an empty list makes another snapshot")
	}
	for key, want := range map[string]bool{"k0": true, hash.String(): true, "okta:any": true, "later": false, "gone:bob": false, hashB: false} {
		if s.Knows(key) != want {
			t.Errorf("knows %s: %v", key, !want)
		}
	}
}

// TestRevokedEditsDoNotLoseEachOther: many at one time, each a process as far as the lock goes.
func TestRevokedEditsDoNotLoseEachOther(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 5 {
				if err := revokeIn(dir, fmt.Sprintf("k%d-%d", w, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := len(revokedKeys(t, dir)); n != 40 {
		t.Errorf("%d of 40 are there", n)
	}
}

const killedEnv = "SPOKEGATE_TEST_REVOKE_DIR"

// TestRevokedKill9 kills the writer again and again: what it said is revoked is, and the list is always whole.
func TestRevokedKill9(t *testing.T) {
	if dir := os.Getenv(killedEnv); dir != "" {
		for i := 0; ; i++ {
			key := fmt.Sprintf("k%d-%d", os.Getpid(), i)
			if err := revokeIn(dir, key); err != nil {
				fmt.Println("failed", err)
				os.Exit(1)
			}
			fmt.Println("revoked", key)
		}
	}
	dir, rnd := t.TempDir(), rand.New(rand.NewPCG(4, 4))
	said := map[string]bool{}
	for range 8 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRevokedKill9$", "-test.v=false")
		cmd.Env = append(os.Environ(), killedEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			key, ok := strings.CutPrefix(lines.Text(), "revoked ")
			if !ok {
				t.Errorf("the writer says %q", lines.Text())
			}
			said[key] = true
			if n == 3 { // in the middle of one of the next, at a moment that nobody chose
				time.AfterFunc(time.Duration(rnd.IntN(3000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
			}
		}
		_ = cmd.Wait()
		there := revokedKeys(t, dir)
		for key := range said {
			if !slices.Contains(there, key) {
				t.Fatalf("%s was said to be revoked, and is not", key)
			}
		}
	}
	if err := revokeIn(dir, "last"); err != nil {
		t.Fatal(err)
	}
	if f := files(t, dir); len(f) != 1 || len(said) < 8 {
		t.Errorf("left over: %v; %d keys", f, len(said))
	}
}

func FuzzParseRevoked(f *testing.F) {
	body := "2026-01-02T03:04:05Z alice\n2026-01-02T03:04:05Z okta:bob\n"
	f.Add(body)
	f.Add("2026-01-02T03:04:05Z " + hashA + "\n")
	f.Add("\n")
	f.Fuzz(func(t *testing.T, body string) {
		if _, err := ParseRevoked("f", []byte(body)); err == nil {
			t.Fatal("taken without a checksum")
		}
		list, err := ParseRevoked("f", append(header(revokedFormat, []byte(body)), body...))
		if err != nil {
			return
		}
		for _, r := range list {
			if got, err := ParseRevocable(r.Key); err != nil || got != r.Key {
				t.Fatalf("%q is in a list, and nobody could have put it there: %v", r.Key, err)
			}
		}
		if strings.Count(strings.TrimSuffix(body, "\n"), "\n")+1 != len(list) && body != "" {
			t.Fatalf("%d keys of %q", len(list), body)
		}
	})
}
