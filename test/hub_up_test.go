package test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestUpWithItsHub runs the demo with the hub that it starts: what commands change there counts at the door, the door serves
// while the hub is dead and after a start without it, and what the spoke revokes by itself the hub is told when it is back.
func TestUpWithItsHub(t *testing.T) {
	t.Parallel()
	u := prepared(t, "hub-demo", func(o *upOptions) { o.workers = 1 })
	replaceFlag(u.cmd, "-policy", "")
	if err := u.begin(); err != nil {
		t.Fatal(err)
	}
	if err := u.awaitReady(); err != nil {
		t.Fatalf("%v\n%s", err, u.report())
	}
	u.ledger = newLedger(filepath.Join(u.dir, "spool"))
	env := u.envFile(t)
	key := env["SPOKEGATE_KEY"]
	if env["SPOKEGATE_HUB"] != "http://"+u.hub || env["SPOKEGATE_HUB_TOKEN_FILE"] != filepath.Join(u.dir, "hub", "admin.token") {
		t.Errorf("the env file says %v", env)
	}
	u.answers(t, key, http.StatusOK)

	u.atHub(t, "key", "revoke", "-m", "lost", "demo-key")
	u.answers(t, key, http.StatusUnauthorized)
	u.atHub(t, "revision", "rollback", "-revive", "1")
	u.answers(t, key, http.StatusOK)

	// A change that is no good hurts nobody, and is refused with its reason.
	if _, errs, code := u.hubCommand(t, "model", "delete", "sim-small"); code != 0 {
		t.Fatalf("a model that nobody needs is not deleted: %s", errs)
	}
	if _, errs, code := u.hubCommand(t, "endpoint", "delete", "demo"); code != 1 || !strings.Contains(errs, "demo") {
		t.Errorf("an endpoint that a model names: exit %d, %s", code, errs)
	}
	u.answers(t, key, http.StatusOK)

	killHub := func() {
		pid := u.child(t, "hub")
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	killHub()
	u.answers(t, key, http.StatusOK)
	if out, errs, code := spokegate(t, "policy", "revoke", "-dir", u.dir, "demo-key"); code != 0 {
		t.Fatalf("%s%s", out, errs)
	}
	u.answers(t, key, http.StatusUnauthorized)
	eventually(t, startPatience, func() error { // `up` starts it again, and the door tells it
		out, errs, code := u.hubCommand(t, "spoke", "status", "-o", "json", "local")
		if code != 0 || !strings.Contains(out, "demo-key") {
			return fmt.Errorf("exit %d: %s%s", code, out, errs)
		}
		return nil
	})
	if err := u.stop(); err != nil {
		t.Error(err)
	}
}

// atHub runs a command that must succeed, as the first admin.
func (u *up) atHub(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := u.hubCommand(t, args...)
	if code != 0 {
		t.Fatalf("spokegate %s: exit %d: %s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// hubCommand runs `spokegate THING WHAT …` against the hub of `up`.
func (u *up) hubCommand(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	how := []string{"-hub", "http://" + u.hub, "-token-file", filepath.Join(u.dir, "hub", "admin.token")}
	return spokegate(t, append(append(args[:2:2], how...), args[2:]...)...)
}

// answers waits until the key is answered so.
func (u *up) answers(t *testing.T, key string, status int) {
	t.Helper()
	eventually(t, factPatience, func() error {
		r := u.do(t, post(key, "/v1/chat/completions", strings.Replace(oneToken, "sim-small", "sim-large", 1)))
		if r.status != status {
			return fmt.Errorf("%d, want %d: %s", r.status, status, r.body)
		}
		return nil
	})
}

// child is the process of one of its roles.
func (u *up) child(t *testing.T, role string) int {
	t.Helper()
	for _, p := range descendants(u.cmd.Process.Pid) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if args := strings.Split(string(line), "\x00"); err == nil && len(args) > 1 && args[1] == role {
			return p.pid
		}
	}
	t.Fatalf("there is no %s", role)
	return 0
}
