package ledger

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spokegate/spokegate/usage"
)

// runChild is the process that the test kills: a ledger over spools, which prints how many requests it has counted whenever
// that changes.
func runChild(arguments string) int {
	database, spools, _ := strings.Cut(arguments, "|")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	feed, err := OpenSpools(spools)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	l, err := Open(ctx, Config{Database: database, Feed: feed, Batch: 50})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	defer l.Close()
	go func() {
		for last := int64(-1); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			if n, err := l.requests(ctx); err == nil && n != last {
				fmt.Println(n)
				last = n
			}
		}
	}()
	if err := l.Run(ctx); err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

func (l *Ledger) requests(ctx context.Context) (n int64, err error) {
	rows, _, err := l.Sums(ctx, Query{Limit: maxLimit})
	for _, r := range rows {
		n += r.Amounts[Requests]
	}
	return n, err
}

// TestKilled kills the real process with -9 again and again while records stream in: what it has counted in the end is what
// the oracle says.
func TestKilled(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		rnd := rand.New(rand.NewPCG(11, 1))
		list := traffic(rnd, 400)
		for i, r := range list {
			r.Source, r.Epoch, r.Sequence = "", 1, uint64(i) // the spool gives others, in this order
		}
		want := oracle(list, Generated)
		var ended int64
		for _, a := range want {
			ended += a[Requests]
		}
		dir := t.TempDir()
		doors := []*usage.Spool{openSpool(t, dir, "door/a"), openSpool(t, dir, "worker/w"), openSpool(t, dir, "repair/x")}
		kills := 0
		for part := range 4 {
			for _, r := range list[part*len(list)/4 : (part+1)*len(list)/4] {
				doors[sourceOf(r.Kind, repaired(r))].Append(r)
			}
			for _, s := range doors {
				if err := s.Flush(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			before := count(t, database)
			c := startChild(t, database, dir)
			c.await(t, func(n int64) bool { return n > before }) // it counts: now, in the middle
			c.kill()
			kills++
		}
		c := startChild(t, database, dir)
		c.await(t, func(n int64) bool { return n == ended })
		c.kill()
		l := opened(t, Config{Database: database})
		settle(t, l, dir)
		if diff := oracleDiff(asOracle(sums(t, l, oracleGroup...)), want); diff != "" {
			t.Fatalf("after %d kills: %s", kills, diff)
		}
	})
}

func sourceOf(kind string, repaired bool) int {
	switch {
	case repaired:
		return 2
	case kind == usage.KindServed:
		return 1
	}
	return 0
}

func openSpool(t testing.TB, dir, source string) *usage.Spool {
	t.Helper()
	s, err := usage.Open(dir, source, usage.Options{SegmentBytes: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// count is what the database says while nobody writes to it.
func count(t *testing.T, database string) int64 {
	t.Helper()
	l := opened(t, Config{Database: database})
	n, err := l.requests(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// settle reads what the last kill has left.
func settle(t *testing.T, l *Ledger, dir string) {
	t.Helper()
	feed, err := OpenSpools(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.cfg.Feed = feed
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	eventually(t, func() bool { return allCounted(l, dir) })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// allCounted tells whether every journal is counted to its end.
func allCounted(l *Ledger, dir string) bool {
	folders, err := usage.Folders(dir)
	if err != nil {
		return false
	}
	for _, f := range folders {
		path, _ := filepath.Abs(f)
		var place string
		err := l.db.view(context.Background(), func(tx *tx) error {
			return tx.Row(`SELECT place FROM lanes WHERE lane = ?`, "spool "+path).Scan(&place)
		})
		left, e := usage.Lines(f, place, 1, func(usage.Line, string) error { return nil })
		if err != nil || e != nil || left > 0 {
			return false
		}
	}
	return true
}

// eventually waits for a fact.
func eventually(t testing.TB, is func() bool) {
	t.Helper()
	for late := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("it does not come")
		}
	}
}

// child is the process that is killed.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startChild(t *testing.T, database, dir string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SPOKEGATE_LEDGER_CHILD="+database+"|"+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &child{cmd, bufio.NewScanner(out)}
}

func (c *child) await(t *testing.T, is func(int64) bool) {
	t.Helper()
	for c.lines.Scan() {
		n, err := strconv.ParseInt(c.lines.Text(), 10, 64)
		if err != nil {
			c.kill()
			t.Fatalf("the child says %q", c.lines.Text())
		}
		if is(n) {
			return
		}
	}
	c.kill()
	t.Fatalf("the child ended without it: %v", c.lines.Err())
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}
