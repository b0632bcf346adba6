//go:build kube

package roll

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	doorCount   = 2
	workerCount = 4
)

func newSpoke(t *testing.T) *spoke {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "sgroll") // sockets want a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &spoke{t: t, dir: dir, binary: filepath.Join(dir, "spokegate"), envoy: filepath.Join(root, ".tools", "envoy", "envoy")}
	build := exec.Command("go", "build", "-o", s.binary, "./cmd/spokegate")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := exec.Command(s.binary, "key", "new", "-id", "k", "-team", "t").Output()
	if err != nil {
		t.Fatal(err)
	}
	s.key = regexp.MustCompile(`sk-\S+`).FindString(string(made))
	hash := regexp.MustCompile(`\{id.*\}`).FindString(string(made))
	for name, text := range map[string]string{
		"token":       strings.Repeat("roll", 16),
		"rates.json":  `{"prefill_tokens_per_second": 2000000, "decode_tokens_per_second": 60, "decode_slowdown": 0, "overhead_ms": 1}`,
		"policy.yaml": "endpoints: [{name: sim}]\nmodels: [{name: m, endpoint: sim}]\nteams: [{name: t, models: [m], limits: [{concurrency: 50}]}]\nkeys:\n  - " + hash + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(lis.Addr().String())
	lis.Close()
	s.redis = "redis://127.0.0.1:" + port
	s.start("redis", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir)
	return s
}

// TestRoll replaces every door and every worker while clients go on, and then kills a door.
func TestRoll(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("it wants root, for mounts of its own")
	}
	s := newSpoke(t)
	for n := range doorCount {
		s.startDoor(n, 1)
	}
	workers := make([]*proc, workerCount)
	for i := range workers {
		workers[i] = s.startWorker(fmt.Sprintf("w-%d", i))
	}
	b := s.balance()
	s.eventually("all doors take clients", func() error { return s.taken(b, doorCount) })
	l := s.load(b.Addr().String())
	quiet := func(what string) {
		t.Helper()
		if bad := l.failed(); len(bad) > 0 {
			t.Errorf("%s: %d failed:\n%s", what, len(bad), strings.Join(bad[:min(len(bad), 10)], "\n"))
		}
	}
	began := time.Now()
	for n, d := range s.living() {
		d.proxy.end(t)
		d.door.end(t)
		s.gone(d)
		s.startDoor(n, 2)
		s.eventually("the new door takes clients", func() error { return s.taken(b, doorCount) })
	}
	quiet("rolling doors")
	for i, old := range workers {
		workers[i] = s.startWorker(fmt.Sprintf("w-%d", workerCount+i))
		old.end(t)
	}
	quiet("rolling workers")
	t.Logf("rolled in %v", time.Since(began).Round(time.Second))

	d := s.living()[0]
	d.proxy.kill() // and with it its Envoy
	d.door.kill()
	s.gone(d)
	s.startDoor(0, 3)
	s.eventually("the door is back", func() error { return s.taken(b, doorCount) })
	cut := l.failed() // what went through it
	s.eventually("there are leases in Redis", func() error {
		n, err := s.leases()
		if err == nil && n == 0 {
			err = errors.New("none")
		}
		return err
	})
	time.Sleep(2 * lag)
	l.end()
	quiet("after the door was killed")
	t.Logf("%d answers, %v; %d cut by kill -9", l.good, l.through, len(cut))
	if l.through["HTTP/1.1"] == 0 || l.through["HTTP/2.0"] == 0 {
		t.Errorf("answers: %v", l.through)
	}
	s.balanced()
}

// taken wants so many doors to be the balancer's.
func (s *spoke) taken(b *balancer, n int) error {
	if ready := *b.ready.Load(); len(ready) != n {
		return fmt.Errorf("%d are: %v", len(ready), ready)
	}
	for _, d := range s.living() {
		if !strings.Contains(fmt.Sprint(*b.ready.Load()), d.ip+":") {
			return fmt.Errorf("%s is not", d.ip)
		}
	}
	return nil
}

// leases are those in Redis that have not run out.
func (s *spoke) leases() (n int64, err error) {
	at, err := redis.ParseURL(s.redis)
	if err != nil {
		return 0, err
	}
	c := redis.NewClient(at)
	defer c.Close()
	sets, err := c.Keys(s.t.Context(), "*leases:*").Result()
	for _, key := range sets {
		live, err := c.ZCount(s.t.Context(), key, fmt.Sprint(time.Now().UnixMicro()), "+inf").Result()
		if err != nil {
			return 0, err
		}
		n += live
	}
	return n, err
}

// balanced: nothing is held any more, and each admission has one record of its use.
func (s *spoke) balanced() {
	for _, d := range s.living() {
		s.comesTo(nothing, d.ip+":"+opsPort, "spokegate_flights_open")
		s.comesTo(nothing, d.ip+":"+opsPort, "spokegate_picker_worker_load")
	}
	s.eventually("Redis holds no lease", func() error { // those of the door that was killed end by themselves
		n, err := s.leases()
		if err == nil && n != 0 {
			err = fmt.Errorf("%d", n)
		}
		return err
	})
	dirs, _ := filepath.Glob(filepath.Join(s.dir, "*", "spool"))
	for i := range dirs {
		dirs[i] = filepath.Dir(dirs[i])
	}
	reconcile := func(more ...string) ([]byte, error) {
		return exec.Command(s.binary, append([]string{"usage", "reconcile", "-settle", "0s", "-dir", filepath.Join(s.dir, "repairs") + "," + strings.Join(dirs, ",")}, more...)...).CombinedOutput()
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "repairs", "spool"), 0o700); err != nil {
		s.t.Fatal(err)
	}
	out, _ := reconcile("-repair") // of the door that was killed
	s.t.Logf("%s", out)
	s.eventually("balance", func() error {
		out, err := reconcile()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		s.t.Logf("%s", out)
		return nil
	})
}
