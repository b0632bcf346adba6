// Package pgtest starts the real PostgreSQL for tests, in a folder of its own and with no door but a socket there.
package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// Server is a real PostgreSQL of a test binary's own, which its tests share; each has a database in it. The zero value starts at
// the first use. TestMain closes it.
type Server struct {
	dir string // temporary; its socket is here, and it has no other door
	cmd *exec.Cmd
	n   int // databases that were made
}

// postgresTool finds one of the server's programs, where `make postgres` has installed it.
func postgresTool(name string) (string, error) {
	list, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	version := func(path string) int { n, _ := strconv.Atoi(strings.Split(path, "/")[4]); return n }
	slices.SortFunc(list, func(a, b string) int { return version(b) - version(a) })
	if len(list) > 0 {
		return list[0], nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errors.New("the real PostgreSQL that this test needs is missing: run `make postgres` (or test/setup/postgres.sh) first")
	}
	return path, nil
}

// Database is the URL of a new one.
func (p *Server) Database(t testing.TB) string {
	t.Helper()
	if p.cmd == nil {
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
	}
	p.n++
	name := fmt.Sprintf("db%d", p.n)
	admin, err := sql.Open("pgx", p.url("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	// Another order of texts than bytes have, as most servers have it: the schema must not lean on it.
	if _, err := admin.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return p.url(name)
}

func (p *Server) url(name string) string {
	return "postgres:///" + name + "?" + url.Values{"host": {p.dir}, "user": {"spokegate"}}.Encode()
}

// start makes a server that answers on a socket in its folder. It refuses to run as root, so root becomes nobody.
func (p *Server) start() error {
	dir, err := os.MkdirTemp("/tmp", "sgpg") // short: a socket's path has 107 bytes
	if err != nil {
		return err
	}
	p.dir = dir
	as := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			return err
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			return err
		}
	}
	initdb, err := postgresTool("initdb")
	if err != nil {
		return err
	}
	make := exec.Command(initdb, "-D", dir+"/data", "-U", "spokegate", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	make.SysProcAttr, make.Dir = as, dir
	if out, err := make.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	server, err := postgresTool("postgres")
	if err != nil {
		return err
	}
	log, err := os.Create(dir + "/log")
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(server, "-D", dir+"/data", "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	p.cmd.SysProcAttr, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = as, dir, log, log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	return p.await()
}

func (p *Server) await() error {
	db, err := sql.Open("pgx", p.url("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	for late := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // polls a fact
		err := db.PingContext(context.Background())
		if err == nil {
			return nil
		}
		if time.Now().After(late) {
			log, _ := os.ReadFile(p.dir + "/log")
			return fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, log)
		}
	}
}

// Close ends the server, if there is one, and removes all that it has.
func (p *Server) Close() {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its children too
		_ = p.cmd.Wait()
	}
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// OnBoth runs a test on a new database of SQLite and on one of PostgreSQL.
func (p *Server) OnBoth(t *testing.T, f func(t *testing.T, database string)) {
	t.Run("sqlite", func(t *testing.T) { f(t, filepath.Join(t.TempDir(), "some 1%.db")) })
	t.Run("postgres", func(t *testing.T) { f(t, p.Database(t)) })
}
