//go:build kube

package roll

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is for what a busy machine may take its time with.
const patience = 3 * time.Minute

// spoke is a spoke's processes. Each door pair has an address of its own on loopback, another with each start, as pods have.
type spoke struct {
	t      *testing.T
	binary string
	envoy  string
	dir    string
	redis  string
	key    string

	mu    sync.Mutex
	doors []*doorPair
}

// proc is a process that belongs to the test.
type proc struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error
}

// start runs a process whose output goes to a file; it dies with the test.
func (s *spoke) start(name string, args ...string) *proc {
	s.t.Helper()
	p := &proc{name: name, cmd: exec.Command(args[0], args[1:]...), log: filepath.Join(s.dir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Unshareflags: syscall.CLONE_NEWNS}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if text, _ := os.ReadFile(p.log); s.t.Failed() {
			s.t.Logf("%s:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
	return p
}

// end asks a process to end, and waits until it has.
func (p *proc) end(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if p.err != nil {
			t.Errorf("%s: %v", p.name, p.err)
		}
	case <-time.After(patience):
		t.Fatalf("%s does not end", p.name)
	}
}

func (p *proc) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// doorPair is a door and its Envoy.
type doorPair struct {
	name, dir, ip string
	door, proxy   *proc
}

const (
	clientPort = "18080"
	fleetPort  = "18090"
	opsPort    = "18001"
	adminPort  = "18901"
	doorsName  = "doors.roll.test"
)

// startDoor starts a pair, the gen-th of its name, and has DNS name its address.
func (s *spoke) startDoor(n, gen int) *doorPair {
	s.t.Helper()
	d := &doorPair{name: fmt.Sprintf("door-%d", n), ip: fmt.Sprintf("127.77.%d.%d", n, gen)}
	d.dir = filepath.Join(s.dir, d.name)
	same := []string{"-name", d.name, "-spoke", "roll", "-dir", d.dir, "-listen", d.ip + ":" + clientPort, "-admin", d.ip + ":" + adminPort,
		"-ops", d.ip + ":" + opsPort, "-redis", s.redis}
	d.door = s.start(d.name, append(append([]string{s.binary, "door"}, same...), "-policy", filepath.Join(s.dir, "policy.yaml"),
		"-fleet-listen", d.ip+":"+fleetPort, "-join-token-file", filepath.Join(s.dir, "token"), "-redis-timeout", "2s")...)
	d.proxy = s.start(d.name+"-envoy", append(append([]string{s.binary, "envoy", "run"}, same...), "-envoy", s.envoy, "-envoy-threads", "1",
		"-drain-delay", "2s", "-drain", "1m")...)
	s.mu.Lock()
	s.doors = append(s.doors, d)
	s.mu.Unlock()
	s.writeHosts()
	return d
}

// gone takes a pair out of DNS.
func (s *spoke) gone(d *doorPair) {
	s.mu.Lock()
	for i := range s.doors {
		if s.doors[i] == d {
			s.doors = append(s.doors[:i:i], s.doors[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	s.writeHosts()
}

func (s *spoke) living() []*doorPair {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*doorPair(nil), s.doors...)
}

// writeHosts rewrites the file in place: it is mounted over workers' /etc/hosts.
func (s *spoke) writeHosts() {
	text := "127.0.0.1 localhost\n"
	for _, d := range s.living() {
		text += d.ip + " " + doorsName + "\n"
	}
	if err := os.WriteFile(filepath.Join(s.dir, "hosts"), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *spoke) startWorker(name string) *proc {
	s.t.Helper()
	dir := filepath.Join(s.dir, name)
	p := s.start(name, "/bin/sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, filepath.Join(s.dir, "hosts"),
		s.binary, "worker", "-name", name, "-spoke", "roll", "-endpoint", "sim", "-dir", dir, "-doors", "dns:"+doorsName+":"+fleetPort,
		"-join-token-file", filepath.Join(s.dir, "token"), "-ops", "127.0.0.1:0", "-drain", "1m", "-rates", filepath.Join(s.dir, "rates.json"))
	s.eventually(name+" is ready", func() error {
		ops, err := os.ReadFile(filepath.Join(dir, "run", name+".ops"))
		if err != nil {
			return err
		}
		return good("http://" + strings.TrimSpace(string(ops)) + "/readyz")
	})
	// What a Deployment's minReadySeconds is for: every door has it.
	s.eventually(name+" is known", func() error {
		for _, d := range s.living() {
			if text, err := page("http://" + d.ip + ":" + opsPort + "/fleet"); err != nil || !strings.Contains(text, `"`+name+`"`) {
				return fmt.Errorf("%s does not know it (%v)", d.name, err)
			}
		}
		return nil
	})
	return p
}

func (s *spoke) eventually(what string, try func() error) {
	s.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	s.t.Fatalf("%s: %v", what, err)
}

var asking = &http.Client{Timeout: patience}

func page(url string) (string, error) {
	resp, err := asking.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), err
}

func good(url string) error { _, err := page(url); return err }

// sum is that of a metric's series; 0 where there is none.
func sum(ops, metric string) (total float64, err error) {
	text, err := page("http://" + ops + "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if base, _, _ := strings.Cut(series, "{"); ok && base == metric {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			total += v
		}
	}
	return total, nil
}

const nothing, something = false, true

// comesTo waits until a metric's sum is nothing, or something.
func (s *spoke) comesTo(want bool, ops, metric string) {
	s.t.Helper()
	s.eventually(metric+" at "+ops, func() error {
		v, err := sum(ops, metric)
		if err == nil && (v != 0) != want {
			err = fmt.Errorf("%v", v)
		}
		return err
	})
}
