package policy

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// smallSteps is a keeper to which a small set is large.
func smallSteps(dir string) *Keeper {
	k := NewKeeper(dir)
	k.from = 32 << 10
	return k
}

// large is a cut that it does not write whole each time.
func large(t *testing.T) *Cut {
	t.Helper()
	c := NewCut(manyKeys(1_000))
	if data, err := encodeSet(c.Revision(), c.All(), nil); err != nil || len(data) < 32<<10 {
		t.Fatalf("%d bytes, %v: too small for steps", len(data), err)
	}
	return c
}

// stepped is the cut that follows: a team more, or one less.
func stepped(c *Cut) *Cut {
	n := c.Revision().GetNumber() + 1
	var removed []Ref
	if n%3 == 0 {
		removed = []Ref{{KindTeam, fmt.Sprint("extra-", n-1)}}
	}
	name := fmt.Sprint("extra-", n)
	return c.Next(&policyv1.Revision{Number: n}, []Resource{Encode(KindTeam, name, &policyv1.Team{Name: name, Models: []string{"*"}})}, removed)
}

// TestSteps keeps revisions of a large policy one after the other, by keepers old and new, and finds each again. A new whole one
// is written when the steps have grown to its size.
func TestSteps(t *testing.T) {
	dir, c := t.TempDir(), large(t)
	k := smallSteps(dir)
	for i := range 40 {
		if err := k.Save(c); err != nil {
			t.Fatal(err)
		}
		got, err := Load(dir)
		if err != nil || !got.Same(c) || got.Revision().GetNumber() != c.Revision().GetNumber() {
			t.Fatalf("after revision %d: %v", c.Revision().GetNumber(), err)
		}
		if i%7 == 0 {
			k = smallSteps(dir)
		}
		if i == 30 { // as large as all that is there: it makes the log too long
			set := manyKeys(4_000)
			set.Revision.Number = c.Revision().GetNumber() + 1
			c = NewCut(set)
			continue
		}
		c = stepped(c)
	}
	whole, err := saved(dir)
	if err != nil || len(whole) != 2 || whole[0] != 32 || whole[1] != 1 {
		t.Errorf("whole ones are %v, %v", whole, err)
	}
	if _, err := os.Stat(filepath.Join(dir, logName(32))); err != nil {
		t.Error(err)
	}
}

// TestStepsDamaged changes the log, and what it follows, at every place that matters and at random ones: what is loaded is always
// a revision as it was, and that it is not the newest is told.
func TestStepsDamaged(t *testing.T) {
	dir := t.TempDir()
	k, c := smallSteps(dir), large(t)
	was, ends := map[uint64]*Cut{}, map[int]bool{}
	for range 8 {
		if err := k.Save(c); err != nil {
			t.Fatal(err)
		}
		was[c.Revision().GetNumber()], ends[int(k.steps)] = c, true
		c = stepped(c)
	}
	path := filepath.Join(dir, logName(1))
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(4, 4))
	for run := range 60 {
		bad := append([]byte(nil), good...)
		at := rnd.IntN(len(bad))
		switch run % 3 {
		case 0:
			bad = bad[:at]
		case 1:
			bad[at] ^= 1 << rnd.IntN(8)
		case 2:
			bad = append(bad[:at:at], good[min(len(good), at+1+rnd.IntN(40)):]...)
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(dir)
		if got == nil || !got.Same(was[got.Revision().GetNumber()]) {
			t.Fatalf("run %d: what was loaded was never kept: %v", run, err)
		}
		var d *Damaged
		between := run%3 == 0 && ends[at] // nothing of the steps that are gone is left to see
		if number := got.Revision().GetNumber(); number < 8 && !errors.As(err, &d) && !between {
			t.Fatalf("run %d: revision %d, and nothing is said", run, number)
		}
		if d != nil && (d.Newest <= d.Used || d.Used != got.Revision().GetNumber()) {
			t.Fatalf("run %d: %+v", run, d)
		}
		// What comes next is kept whole, and found.
		if run%30 == 0 {
			again := smallSteps(dir)
			_, _ = again.Load()
			if err := again.Save(c); err != nil {
				t.Fatal(err)
			}
			if got, err := Load(dir); err != nil || !got.Same(c) {
				t.Fatalf("after damage: %v", err)
			}
			if err := os.Remove(filepath.Join(dir, savedName(c.Revision().GetNumber()))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBaseDamaged: the one before a damaged whole one is the last of the log that it closed.
func TestBaseDamaged(t *testing.T) {
	dir := t.TempDir()
	k, c := smallSteps(dir), large(t)
	for range 3 {
		if err := k.Save(c); err != nil {
			t.Fatal(err)
		}
		c = stepped(c)
	}
	set := manyKeys(1_001)
	set.Revision.Number = 4
	if err := k.whole(NewCut(set)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, savedName(4)), 1000); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	var d *Damaged
	if !errors.As(err, &d) || d.Newest != 4 || d.Used != 3 || got.Revision().GetNumber() != 3 {
		t.Errorf("%v", err)
	}
}

// TestBaseOfStepsDamaged: numbers that stand in a log are known to be used, also where the one that it follows is damaged.
func TestBaseOfStepsDamaged(t *testing.T) {
	dir := t.TempDir()
	k, c := smallSteps(dir), large(t)
	for range 4 {
		if err := k.Save(c); err != nil {
			t.Fatal(err)
		}
		c = stepped(c)
	}
	if err := os.Truncate(filepath.Join(dir, savedName(1)), 1000); err != nil {
		t.Fatal(err)
	}
	k = smallSteps(dir)
	got, err := k.Load()
	var d *Damaged
	if !errors.As(err, &d) || d.Newest != 4 || d.Used != 0 || got != nil {
		t.Errorf("%v", err)
	}
	if err := k.Save(c.Next(&policyv1.Revision{Number: 2}, nil, nil)); err == nil {
		t.Error("a number that was used is given to another")
	}
	if err := k.Save(c); err != nil {
		t.Error(err)
	}
}

// TestSaveAfterLoadFailed: what is on disk must be known before anything is written there.
func TestSaveAfterLoadFailed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k := smallSteps(dir)
	if _, err := k.Load(); err == nil {
		t.Fatal("a file is read as a folder")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	mustSave(t, dir, 5)
	if err := k.Save(NewCut(numbered(4))); err == nil || !strings.Contains(err.Error(), "older than revision 5") {
		t.Errorf("going back: %v", err)
	}
	if err := k.Save(NewCut(numbered(6))); err != nil {
		t.Error(err)
	}
}

// TestSavesKilled: a process that is killed at any moment leaves the newest revision that it had told of, or the one that it was
// about to tell of.
func TestSavesKilled(t *testing.T) {
	if dir := os.Getenv("SPOKEGATE_KEEP_IN"); dir != "" {
		k := smallSteps(dir)
		c, err := k.Load()
		if err != nil {
			t.Fatal(err)
		}
		for {
			c = stepped(c)
			if err := k.Save(c); err != nil {
				t.Fatal(err)
			}
			fmt.Println("kept", c.Revision().GetNumber())
		}
	}
	dir := t.TempDir()
	if err := smallSteps(dir).Save(large(t)); err != nil {
		t.Fatal(err)
	}
	last := uint64(1)
	for range 5 {
		told := killed(t, "TestSavesKilled", "SPOKEGATE_KEEP_IN="+dir, "kept ", 3)
		c, err := Load(dir)
		var d *Damaged
		if err != nil && !errors.As(err, &d) {
			t.Fatal(err)
		}
		if n := c.Revision().GetNumber(); n < told || n > told+1 || told <= last && told != 0 {
			t.Fatalf("told of %d after %d, found %d", told, last, n)
		}
		last = c.Revision().GetNumber()
	}
}

// killed runs a test of this binary in a process of its own, and kills it a moment after it has told something for the n-th time.
// It gives the number that was told last.
func killed(t *testing.T, test, env, told string, n int) (last uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v=false")
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), told)
		if _, err := fmt.Sscan(text, &last); !ok || err != nil {
			t.Errorf("it says %q", lines.Text())
		}
		if n--; n == 0 {
			time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Wait()
	return last
}
