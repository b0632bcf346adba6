package test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spokegate/spokegate/envoy"
)

// secondPair starts another door and its Envoy beside an installation, as a spoke grows: the same policy, the same stores,
// and a worker that has joined both doors. It gives the new door, and the folder of the worker's journal.
func secondPair(t *testing.T, first *up, stores ...string) (*up, string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sg")
	if err != nil {
		t.Fatal(err)
	}
	u := &up{name: "door-2", dir: dir, listen: freeAddr(), admin: freeAddr(), ops: freeAddr(), policy: first.policy,
		policyPath: first.policyPath, exited: make(chan struct{})}
	for _, d := range []string{"run", "log"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	token := filepath.Join(first.dir, "run", "join-token")
	flags := append([]string{"-name", "door-2", "-dir", dir, "-policy", u.policyPath, "-listen", u.listen, "-admin", u.admin,
		"-ops", u.ops, "-join-token-file", token}, stores...)
	u.cmd = command(append([]string{"door"}, flags...)...)
	u.cmd.Stdout, u.cmd.Stderr = &u.out, &u.out
	if err := u.begin(); err != nil {
		t.Fatal(err)
	}
	u.ledger = newLedger(filepath.Join(dir, "spool"))
	t.Cleanup(func() {
		if err := u.stop(); err != nil {
			t.Error(err)
		}
	})

	bootstrap, err := command(append([]string{"envoy", "print", "-bootstrap"}, flags...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "run", "envoy.yaml")
	if err := os.WriteFile(path, bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	argv := envoy.Command(lab.envoy, envoy.Door{}, path)
	u.beside(t, "envoy", exec.Command(argv[0], argv[1:]...))

	journal, err := os.MkdirTemp("/tmp", "sg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(journal) })
	socket := func(u *up) string { return "unix:" + filepath.Join(u.dir, "run", "fleet.sock") }
	u.beside(t, "worker", command("worker", "-name", "shared", "-endpoint", "sim", "-dir", journal, "-doors", socket(first)+","+socket(u),
		"-join-token-file", token, "-rates", ratesFile(t), "-kafka", stores[len(stores)-1]))
	eventually(t, startPatience, func() error {
		for _, page := range []string{u.ops + "/readyz", u.admin + "/ready"} {
			resp, err := http.Get("http://" + page)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s says %s", page, resp.Status)
			}
		}
		return nil
	})
	first.knows(t, "sim", 4)
	u.knows(t, "sim", 1)
	return u, filepath.Join(journal, "spool")
}

// beside runs a process that belongs to an installation, and is ended before it.
func (u *up) beside(t *testing.T, name string, cmd *exec.Cmd) {
	t.Helper()
	log, err := os.Create(filepath.Join(u.dir, "log", name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	p := &up{name: name, cmd: cmd, exited: make(chan struct{})}
	if err := p.begin(); err != nil {
		t.Fatal(err)
	}
	u.closer = append(u.closer, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(stopPatience):
			t.Errorf("%s does not end on SIGTERM", name)
			_ = cmd.Process.Kill()
			<-p.exited
		}
	})
}
