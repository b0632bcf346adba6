package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/doctor"
)

// visit runs `spokegate doctor` and gives what it said, as JSON, with its exit status.
func visit(t *testing.T, args ...string) (r doctor.Report, status int) {
	t.Helper()
	cmd := command(append([]string{"doctor", "-json", "-patience", "1m"}, args...)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return r, cmd.ProcessState.ExitCode()
}

// machines may have little room and few files; that is no fault of the deployment.
var machines = []string{"disk-low", "files-few", "envoy-files"}

// wrongs are the findings of a report that are not well.
func wrongs(r doctor.Report) (list []string) {
	for _, f := range r.Findings {
		if f.Severity != doctor.OK && !slices.Contains(machines, f.ID) {
			list = append(list, f.ID+" at "+f.Where+": "+f.Saw)
		}
	}
	return list
}

// TestDoctor wants a good deployment found good, and each thing that is made wrong found by its name.
func TestDoctor(t *testing.T) {
	t.Parallel()
	u := ownUp(t, "doctor", upOptions{policy: simPolicy(), rates: ratesFile(t), workers: 2})
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(u.key("main")), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, startPatience, func() error { // a shim may still be on its way to its door
		r, status := visit(t, "-dir", u.dir, "-key-file", key)
		list := slices.DeleteFunc(wrongs(r), func(s string) bool { return strings.HasPrefix(s, "policy-unlimited") })
		if len(list) > 0 || status == 2 || status == 1 && r.Verdict == doctor.Note {
			return fmt.Errorf("exit status %d, found %q", status, list)
		}
		for _, id := range []string{"listener-lets-in", "shim-open", "envoy-body-buffer", "clock-skew", "policy-refused", "request-unmetered"} {
			if !slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool { return f.ID == id && f.Severity == doctor.OK }) {
				return fmt.Errorf("%s was not looked at", id)
			}
		}
		return nil
	})

	engine := startEngine("sim-small")               // open to this machine, and of another kind than the others
	u.closer = append(u.closer, engine.server.Close) // when the worker has gone
	stray := command("worker", "-name", "stray", "-endpoint", "nowhere", "-dir", u.dir, "-doors", "unix:"+filepath.Join(u.dir, "run", "fleet.sock"),
		"-join-token-file", filepath.Join(u.dir, "run", "join-token"), "-attach", engine.server.URL, "-body-limit", "1048576", "-ops", "127.0.0.1:0")
	u.beside(t, "stray", stray)
	u.rewrite(t, "endpoints: [{name: e}]\nmodles: []\n")
	if err := os.Chmod(filepath.Join(u.dir, "run", "join-token"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantFound(t, []string{"-dir", u.dir}, 2, "worker-stray", "worker-body-limit", "engine-on-loopback", "policy-refused", "secret-open")
	r, status := visit(t, "-ops", freeAddr(), "-admin", freeAddr())
	if status != 2 || !r.Has("ops-unreachable") || !r.Has("envoy-unreachable") {
		t.Errorf("of what does not answer: exit status %d, %q", status, wrongs(r))
	}
}

// wantFound waits until all of these are found.
func wantFound(t *testing.T, args []string, want int, ids ...string) {
	t.Helper()
	eventually(t, startPatience, func() error {
		r, status := visit(t, args...)
		for _, id := range ids {
			if !r.Has(id) {
				return fmt.Errorf("%s is not found: %q", id, wrongs(r))
			}
		}
		if status != want {
			return fmt.Errorf("exit status %d, want %d", status, want)
		}
		return nil
	})
}

// TestDoctorOfAnotherGateway looks at an Envoy that somebody configured by hand, with mistakes.
func TestDoctorOfAnotherGateway(t *testing.T) {
	t.Parallel()
	lab.needEnvoy(t)
	text, err := os.ReadFile("../doctor/testdata/bad.yaml")
	if err != nil {
		t.Fatal(err)
	}
	admin, clients := freePort(), freePort()
	boot := filepath.Join(t.TempDir(), "envoy.yaml")
	replaced := strings.NewReplacer("23191", fmt.Sprint(admin), "23190", fmt.Sprint(clients)).Replace(string(text))
	if err := os.WriteFile(boot, []byte(replaced), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := exec.Command(lab.envoy, "--config-path", boot, "--disable-hot-restart", "--concurrency", "1", "--log-level", "error")
	proxy.Stdout, proxy.Stderr = io.Discard, os.Stderr
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = proxy.Process.Kill()
		_ = proxy.Wait()
	})
	wantFound(t, []string{"-admin", fmt.Sprintf("127.0.0.1:%d", admin)}, 2, "envoy-admin-open", "envoy-body-buffer", "envoy-body-partial",
		"envoy-breakers-services", "envoy-breakers-workers", "envoy-buffer", "envoy-client-headers", "envoy-deaf", "envoy-fails-open",
		"envoy-no-admission", "envoy-order", "envoy-route-timeout", "envoy-two-streams")
}

// doctorLooks at both doors, and at the real Redis and Kafka that they share.
func (s stores) doctorLooks(t *testing.T) {
	wantFound(t, []string{"-dir", s.ups[0].dir, "-ops", s.ups[1].ops}, 1, "kafka-replicas", "redis-forgets")
	r, _ := visit(t, "-dir", s.ups[0].dir, "-ops", s.ups[1].ops)
	for _, id := range []string{"redis-differs", "redis-version", "redis-evicts", "kafka-offline", "kafka-message-size", "policies-differ"} {
		if r.Has(id) || !slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool { return f.ID == id }) {
			t.Errorf("%s: want it looked at, and well: %q", id, wrongs(r))
		}
	}
}
