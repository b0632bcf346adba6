package hub

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spokegate/spokegate/policy"
)

func TestOpenRefuses(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("this is no database, and longer than its header would be, so that it is looked at at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer.db")
	if err := opened(t, Config{Database: newer}).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", newer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE meta SET value = '99'`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for database, want := range map[string]string{
		"mysql://x/y":                           "a file of SQLite, or a URL that begins with postgres://",
		"postgres://user:geheim@[bad/":          "cannot be read",
		filepath.Join(dir, "nowhere", "hub.db"): "no such file or directory",
		filepath.Join(dir, "text"):              "not a database",
		newer:                                   "its schema is 99, of a newer version of spokegate",
		"postgres:///x?host=" + dir + "&user=spokegate&password=geheim": "failed to connect",
	} {
		h, err := Open(ctx, Config{Database: database})
		if err == nil {
			_ = h.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v, want %s", database, err, want)
		}
	}
	if _, err := Open(ctx, Config{Database: filepath.Join(dir, "hub.db"), Templates: filepath.Join(dir, "nowhere")}); err == nil {
		t.Error("a folder of templates that is not there")
	}
	if info, err := os.Stat(newer); err != nil || info.Mode() != 0o600 {
		t.Errorf("the database's mode is %v, %v", info.Mode(), err)
	}
}

// TestDatabaseGone: a commit whose end nobody knows is an error; what the hub holds stays, and the next one goes on from what is
// there.
func TestDatabaseGone(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		h := opened(t, Config{Database: database})
		must(t, h, put(KindSpoke, "a", "{}"))
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		c := Commit{Actor: admin, IdempotencyKey: "x", Changes: []Change{put(KindSpoke, "b", "{}")}}
		if _, err := h.Commit(gone, c); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if h.Head().Number != 1 || h.Cut("b") != nil {
			t.Error("half a commit")
		}
		// It happened, and the answer was lost: another hub did it under the same key.
		if r, err := opened(t, Config{Database: database}).Commit(context.Background(), c); err != nil || r.Number != 2 {
			t.Fatal(r, err)
		}
		r, err := h.Commit(context.Background(), c)
		if err != nil || r.Number != 2 || h.Head().Number != 2 {
			t.Errorf("%+v, %v; at %d", r, err, h.Head().Number)
		}
	})
}

// TestBehind: what another hub has written and this one cannot read is told, what is held goes on, and it is over when it is mended.
func TestBehind(t *testing.T) {
	database := filepath.Join(t.TempDir(), "hub.db")
	h := opened(t, Config{Database: database, Poll: 10 * time.Millisecond})
	must(t, h, put(KindSpoke, "a", "{}"))
	db, err := sql.Open("sqlite", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, step := range []struct {
		sql    string
		behind bool
	}{
		{`INSERT INTO versions SELECT kind, 'later', 2, until, team, '{"of": "a later release"}', encoded, created, updated FROM versions WHERE name = 'a';
		  INSERT INTO revisions SELECT 2, digest, message, actor, role, request, at, changes, rollback_to FROM revisions WHERE number = 1`, true},
		{`UPDATE versions SET body = '{}' WHERE name = 'later'`, false},
	} {
		if _, err := db.Exec(step.sql); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(3 * time.Minute); (h.Behind() != nil) != step.behind; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("behind: %v, want that it is %v; at %d", h.Behind(), step.behind, h.Head().Number)
			}
		}
		if want := map[bool]uint64{true: 1, false: 2}[step.behind]; h.Head().Number != want {
			t.Errorf("at %d, want %d", h.Head().Number, want)
		}
	}
}

// TestPages: lists are whole, page by page.
func TestPages(t *testing.T) {
	ctx := context.Background()
	h := opened(t, Config{Database: filepath.Join(t.TempDir(), "hub.db")})
	names := []string{"a", "a.2", "b", "c-1", "c_1", "z"}
	for _, n := range names {
		must(t, h, put(KindSpoke, n, "{}"))
	}
	var got []string
	for after, more := "", true; more; {
		var list []Object
		var err error
		if list, more, err = h.List(ctx, admin, KindSpoke, Page{After: after, Limit: 2}); err != nil || len(list) == 0 {
			t.Fatal(list, err)
		}
		for _, o := range list {
			got, after = append(got, o.Name), o.Name
		}
	}
	if strings.Join(got, " ") != "a a.2 b c-1 c_1 z" {
		t.Errorf("%v", got)
	}
	var numbers []uint64
	for before := uint64(0); ; {
		list, err := h.Audit(ctx, admin, AuditQuery{Before: before, Limit: 4})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		for _, a := range list {
			numbers, before = append(numbers, a.Number), a.Number
		}
	}
	if len(numbers) != len(names) || numbers[0] != 6 || numbers[5] != 1 {
		t.Errorf("%v", numbers)
	}
	for _, bad := range []Page{{Limit: -1}, {Limit: MaxPage + 1}, {After: "\x00"}} {
		var invalid *Invalid
		if _, _, err := h.List(ctx, admin, KindSpoke, bad); !errors.As(err, &invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func FuzzReadThing(f *testing.F) {
	for _, body := range []string{
		`{"spoke": "a", "placement": {"gpu": "H100", "gpus": 2, "labels": {"a": "b"}}, "deployment": {"stack": "plain", "model": "m", "image": "i"}}`,
		`{"team": "t", "sha256": "00", "expires": "2026-11-29T13:05:00Z", "limits": [{"concurrency": 1e0}]}`, `{"labels": {"a": "\u0000"}}`, `null`, `{"": []}`,
	} {
		for i := range Kinds {
			f.Add(uint8(i), "x", []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, name string, raw []byte) {
		k := Kinds[int(kind)%len(Kinds)]
		th, err := readThing(k, name, raw)
		if err != nil {
			var bad *Invalid
			if !errors.As(err, &bad) || len(bad.Problems) == 0 {
				t.Fatalf("%v", err)
			}
			return
		}
		again, err := readThing(k, name, th.raw)
		if err != nil || string(again.raw) != string(th.raw) {
			t.Fatalf("%s is read as %s, and that as %v (%v)", raw, th.raw, again, err)
		}
		if k != KindSpoke && policy.Encode(resourceKinds[k], name, th.message).Version != policy.Encode(resourceKinds[k], name, again.message).Version {
			t.Fatalf("%s has two meanings", raw)
		}
	})
}
