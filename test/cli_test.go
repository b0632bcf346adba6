package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/usage"
)

// spokegate runs a command to its end.
func spokegate(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestUsageTail(t *testing.T) {
	t.Parallel()
	u := simulated(t, "admission")
	r := u.ok(t, post(u.key("main"), "/v1/chat/completions", oneToken, field{"x-request-id", "tail-me"}))
	u.ledger.usage(t, r.admission())
	for kind, want := range map[string]string{"": "usage", "usage": "usage", "admitted": "admitted", "served": "served"} {
		args := []string{"usage", "tail", "-follow=false", "-dir", u.dir}
		if kind != "" {
			args = append(args, "-kind", kind)
		}
		if want == "served" {
			u.ledger.served(t, r.admission())
		}
		out, errs, code := spokegate(t, args...)
		if code != 0 || errs != "" {
			t.Fatalf("kind %q: exit code %d, %s", kind, code, errs)
		}
		found := 0
		for line := range strings.Lines(out) {
			rec, err := usage.ParseJSON([]byte(line))
			if err != nil || !json.Valid([]byte(line)) || rec.GetKind() != want {
				t.Fatalf("kind %q: %v in %s", kind, err, line)
			}
			if rec.GetAdmission() == r.admission() {
				found++
			}
			if strings.Contains(line, u.key("main")) {
				t.Errorf("a key is in a record: %s", line)
			}
		}
		if found != 1 {
			t.Errorf("kind %q: %d records of one admission", kind, found)
		}
	}
	if _, errs, code := spokegate(t, "usage", "tail", "-follow=false", "-dir", "/nowhere"); code != 1 || !strings.Contains(errs, "/nowhere") {
		t.Errorf("a folder that is not there: exit code %d, %s", code, errs)
	}
}

func TestPolicyCheck(t *testing.T) {
	t.Parallel()
	out, errs, code := spokegate(t, "policy", "check", filepath.Join(lab.root, "examples", "policy.yaml"))
	if code != 0 || errs != "" || !strings.Contains(out, "is good") {
		t.Errorf("the example: exit code %d, %s%s", code, out, errs)
	}
	path := filepath.Join(t.TempDir(), "bad.yaml")
	bad := strings.Replace(simPolicy().yaml(), "team: t1", "team: nobody", 1)
	line := 1 + strings.Count(bad[:strings.Index(bad, "nobody")], "\n")
	if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errs, code = spokegate(t, "policy", "check", path)
	if code != 1 || !strings.Contains(errs, "nobody") || !strings.Contains(errs, path+":"+strings.TrimSpace(jsonNumber(line))+":") {
		t.Errorf("a team that is not there, on line %d: exit code %d, %s", line, code, errs)
	}
	if _, errs, code := spokegate(t, "policy", "check"); code != 2 || !strings.Contains(errs, "FILE") {
		t.Errorf("no file: exit code %d, %s", code, errs)
	}
	if out, _, code := spokegate(t, "policy", "schema"); code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("schema: exit code %d, %s", code, out)
	}
}

func jsonNumber(n int) string {
	b, _ := json.Marshal(n) // an int
	return string(b)
}

// TestKeyNew makes a key with the command, and uses it.
func TestKeyNew(t *testing.T) {
	t.Parallel()
	out, errs, code := spokegate(t, "key", "new", "-o", "json")
	var made struct{ Key, SHA256 string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || errs != "" {
		t.Fatalf("%v, exit code %d: %s%s", err, code, out, errs)
	}
	hash, ok := identity.ParseKey(made.Key)
	if !ok || hash.String() != made.SHA256 {
		t.Errorf("the hash does not fit the key: %s", out)
	}
	text, _, code := spokegate(t, "key", "new", "-id", "bob", "-team", "t1")
	if code != 0 || strings.Count(text, "sk-sg-") != 1 || !strings.Contains(text, "{id: bob, team: t1, sha256:") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// TestEnvoyPrint wants what Envoy itself accepts, and the parts that keep the door closed.
func TestEnvoyPrint(t *testing.T) {
	t.Parallel()
	lab.needEnvoy(t)
	for _, picker := range pickers {
		dir := t.TempDir()
		path := filepath.Join(dir, "p.yaml")
		if err := os.WriteFile(path, []byte(simPolicy().yaml()), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs, code := spokegate(t, "envoy", "print", "-dir", "/tmp/sg-print", "-picker", picker, "-policy", path)
		if code != 0 || errs != "" {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		for _, part := range []string{"filters.http.ext_authz.v3", "filters.http.rbac.v3", "filters.http.ext_proc.v3", "observability_mode",
			"clear_route_cache", "override_host", "127.0.0.1", "REJECT_REQUEST"} {
			if !strings.Contains(out, part) {
				t.Errorf("%s: there is no %s in it", picker, part)
			}
		}
		boot := filepath.Join(dir, "envoy.yaml")
		if err := os.WriteFile(boot, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		if said, err := exec.CommandContext(t.Context(), lab.envoy, "--mode", "validate", "-c", boot).CombinedOutput(); err != nil {
			t.Errorf("%s: Envoy does not accept it: %v\n%s", picker, err, said)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	if out, _, code := spokegate(t, "help"); code != 0 || !strings.Contains(out, "spokegate up") {
		t.Errorf("help: exit code %d, %s", code, out)
	}
	if _, errs, code := spokegate(t, "dance"); code != 2 || !strings.Contains(errs, "dance") {
		t.Errorf("a command that is not there: exit code %d, %s", code, errs)
	}
	for _, role := range []string{"up", "door", "worker", "sim"} {
		if out, errs, code := spokegate(t, role, "-h"); code != 0 || !strings.Contains(out, "-") || errs != "" {
			t.Errorf("%s -h: exit code %d, %s%s", role, code, out, errs)
		}
		if _, errs, code := spokegate(t, role, "-no-such-flag"); code != 2 || errs == "" {
			t.Errorf("%s with an unknown flag: exit code %d, %s", role, code, errs)
		}
	}
}

// TestUsageTailFollow watches records as they come, and ends on Ctrl-C with what it has shown so far.
func TestUsageTailFollow(t *testing.T) {
	t.Parallel()
	u := simulated(t, "admission")
	var out output
	cmd := command("usage", "tail", "-dir", u.dir)
	cmd.Stdout, cmd.Stderr = &out, &out
	tail := &up{cmd: cmd, exited: make(chan struct{})}
	if err := tail.begin(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	r := u.ok(t, post(u.key("main"), "/v1/chat/completions", oneToken))
	eventually(t, journalPatience, func() error {
		if !strings.Contains(out.String(), r.admission()+"/usage") {
			return errors.New("the record is not shown")
		}
		return nil
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-tail.exited
	if tail.err != nil {
		t.Errorf("Ctrl-C: want exit code 0, got %v", tail.err)
	}
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("this is no JSON line: %q", line)
		}
	}
}
