package test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wantFailure starts an `up` that cannot work, and wants one sentence with these words and exit code 1.
func wantFailure(t *testing.T, u *up, words ...string) {
	t.Helper()
	if err := u.begin(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-u.exited:
	case <-time.After(startPatience):
		_ = u.kill()
		t.Fatalf("it goes on: %s", u.out.String())
	}
	defer os.RemoveAll(u.dir)
	var exit *exec.ExitError
	if !errors.As(u.err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("want exit code 1, got %v", u.err)
	}
	said := strings.TrimSpace(u.out.String())
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("no %q in what it says: %s", w, said)
		}
	}
	if n := strings.Count(said, "\n"); n > 0 || strings.Contains(said, "goroutine") {
		t.Errorf("want one line, got %d: %s", n+1, said)
	}
	if err := u.leftBehind(nil, 0); err != nil {
		t.Error(err)
	}
}

func prepared(t *testing.T, name string, change func(o *upOptions)) *up {
	t.Helper()
	lab.needEnvoy(t)
	o := upOptions{policy: simPolicy(), workers: 1}
	if change != nil {
		change(&o)
	}
	u, err := newUp(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestUpTakenPort(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"listen", "admin", "ops"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			u := prepared(t, "taken-"+which, nil)
			addr := map[string]string{"listen": u.listen, "admin": u.admin, "ops": u.ops}[which]
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			wantFailure(t, u, addr, "taken", "-"+which)
		})
	}
}

func TestUpMissingEnvoy(t *testing.T) {
	t.Parallel()
	u := prepared(t, "no-envoy", nil)
	replaceFlag(u.cmd, "-envoy", "/nowhere/envoy")
	wantFailure(t, u, "/nowhere/envoy")

	u = prepared(t, "no-envoy-at-all", nil)
	replaceFlag(u.cmd, "-envoy", "")
	u.cmd.Env = []string{"PATH=/nowhere"}
	wantFailure(t, u, "Envoy", "make envoy")
}

func replaceFlag(cmd *exec.Cmd, name, value string) {
	for i, a := range cmd.Args {
		if a == name {
			cmd.Args[i+1] = value
		}
	}
}

func TestUpBadPolicy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		words []string
	}{
		"unknown name": {"endpoints: [{name: e}]\nmodels: [{name: m, endpoint: e}]\nmodles: []\n", []string{"p.yaml:3:1", "modles"}},
		"not YAML":     {"endpoints: [{name: e}\n", []string{"p.yaml"}},
		"empty":        {"", []string{"p.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := prepared(t, "bad-policy", nil)
			u.rewrite(t, c.text)
			wantFailure(t, u, c.words...)
		})
	}
	u := prepared(t, "no-policy", nil)
	replaceFlag(u.cmd, "-policy", "/nowhere/p.yaml")
	wantFailure(t, u, "/nowhere/p.yaml")
}

func TestUpUnusableFlags(t *testing.T) {
	t.Parallel()
	u := prepared(t, "picker", func(o *upOptions) { o.picker = "guess" })
	wantFailure(t, u, "guess", "admission", "ext_proc")
	u = prepared(t, "small-body", func(o *upOptions) { o.more = []string{"-body-limit", "100000"} })
	wantFailure(t, u, "100000", "1 MiB")
	u = prepared(t, "attach", func(o *upOptions) { o.policy = newPolicy("", nil); o.attach = "http://127.0.0.1:1" })
	replaceFlag(u.cmd, "-policy", "")
	wantFailure(t, u, "-attach", "http://127.0.0.1:1")
}

// TestUpTwice wants a second one in the same folder refused, and the first undisturbed.
func TestUpTwice(t *testing.T) {
	t.Parallel()
	first := ownUp(t, "first", upOptions{policy: simPolicy(), workers: 1})
	second := prepared(t, "second", nil)
	replaceFlag(second.cmd, "-dir", first.dir)
	wantFailure(t, second, "another `spokegate up`", first.dir)
	first.ok(t, post(first.key("main"), "/v1/chat/completions", oneToken))
}

// TestUpInterrupted presses Ctrl-C: once it is open, and before.
func TestUpInterrupted(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]string{"open": openSentence, "starting": "starting"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := prepared(t, "interrupted", nil)
			if err := u.begin(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = u.kill() }()
			eventually(t, startPatience, func() error {
				if !strings.Contains(u.out.String(), wait) {
					return errors.New(u.report())
				}
				return nil
			})
			family := descendants(u.cmd.Process.Pid)
			if err := syscall.Kill(-u.cmd.Process.Pid, syscall.SIGINT); err != nil { // a terminal tells the whole group
				t.Fatal(err)
			}
			select {
			case <-u.exited:
			case <-time.After(stopPatience):
				t.Fatalf("it does not end: %s", u.report())
			}
			if u.err != nil {
				t.Errorf("want exit code 0, got %v\n%s", u.err, u.report())
			}
			if err := u.leftBehind(family, 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUpKilled kills `up` itself, which cannot tidy up: its children must notice by themselves.
func TestUpKilled(t *testing.T) {
	t.Parallel()
	u := prepared(t, "killed", nil)
	if err := u.begin(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = u.kill() }()
	if err := u.awaitReady(); err != nil {
		t.Fatalf("%v\n%s", err, u.report())
	}
	family := descendants(u.cmd.Process.Pid)
	if len(family) < 4 { // door, Envoy, worker, engine
		t.Fatalf("the family is %v", family)
	}
	if err := u.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-u.exited
	if err := u.leftBehind(family, factPatience); err != nil {
		t.Error(err)
	}
}

// TestUpByItself runs the demo as a newcomer does: no policy given, the key and the address taken from the env file, and
// again in the same folder with the same key.
func TestUpByItself(t *testing.T) {
	t.Parallel()
	u := prepared(t, "demo", nil)
	replaceFlag(u.cmd, "-policy", "")
	demo := func() map[string]string {
		if err := u.begin(); err != nil {
			t.Fatal(err)
		}
		if err := u.awaitReady(); err != nil {
			t.Fatalf("%v\n%s", err, u.report())
		}
		env := u.envFile(t)
		if env["SPOKEGATE_URL"] != "http://"+u.listen || env["SPOKEGATE_DIR"] != u.dir {
			t.Errorf("the env file says %v", env)
		}
		pasted(t, u)
		return env
	}
	first := demo()
	if strings.Contains(u.out.String(), first["SPOKEGATE_KEY"]) {
		t.Error("the key is printed on the terminal")
	}
	u.ledger = newLedger(filepath.Join(u.dir, "spool"))
	family := descendants(u.cmd.Process.Pid)
	_ = u.cmd.Process.Signal(syscall.SIGTERM)
	<-u.exited
	if err := errors.Join(u.err, u.leftBehind(family, 0)); err != nil {
		t.Errorf("%v\n%s", err, u.report())
	}
	again := command(u.cmd.Args[1:]...)
	u.cmd, u.exited = again, make(chan struct{})
	again.Stdout, again.Stderr = &u.out, &u.out
	u.out = output{}
	if second := demo(); second["SPOKEGATE_KEY"] != first["SPOKEGATE_KEY"] {
		t.Error("the key changed with the second start")
	}
	if err := u.stop(); err != nil {
		t.Error(err)
	}
}

// pasted runs the lines that `up` prints, as they are, in a shell.
func pasted(t *testing.T, u *up) {
	t.Helper()
	_, after, ok := strings.Cut(u.out.String(), openSentence)
	_, lines, ok2 := strings.Cut(after, "\n")
	lines, _, ok3 := strings.Cut(lines, "usage records:")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("there are no lines to paste in %s", u.out.String())
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "sh", "-c", lines)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "data: [DONE]") {
		t.Errorf("pasting gives %v\n%s%s\nthe lines were %s", err, out, errs.String(), lines)
	}
}
