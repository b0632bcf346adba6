package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// hubProcess is the shipped binary as a hub, and a folder in which commands are typed.
type hubProcess struct {
	*up
	dir, url, ops, push string
}

// startHub returns when the hub answers.
func startHub(t *testing.T, more ...string) *hubProcess {
	t.Helper()
	h := &hubProcess{dir: t.TempDir(), ops: freeAddr()}
	listen := freeAddr()
	h.url, h.push = "http://"+listen, freeAddr()
	args := append([]string{"hub", "-dir", filepath.Join(h.dir, "hub"), "-listen", listen, "-push-listen", h.push, "-ops", h.ops}, more...)
	h.up = &up{name: "hub", cmd: command(args...), exited: make(chan struct{})}
	h.cmd.Stdout, h.cmd.Stderr = &h.out, &h.out
	if err := h.begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		<-h.exited
	})
	eventually(t, startPatience, func() error {
		select {
		case <-h.exited:
			t.Fatalf("the hub ended: %v\n%s", h.err, h.out.String())
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.ops+"/readyz", nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err == nil && res.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s", text)
		}
		return err
	})
	return h
}

// run types a command in the folder.
func (h *hubProcess) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := command(args...)
	cmd.Dir = h.dir
	cmd.Env = append(cmd.Env, "SPOKEGATE_HUB="+h.url, "SPOKEGATE_HUB_TOKEN_FILE="+filepath.Join("hub", "admin.token"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// always is what is another in every run, and what the scenario has instead.
var always = []struct {
	form *regexp.Regexp
	told string
}{
	{regexp.MustCompile(`2131-01-31T00:\d\d:\d\dZ`), "2131-01-31T00:00:00Z"}, // a rotated key's: it lives as long as the old one
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), "2026-01-02 03:04:05"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:[\d.]+Z`), "2026-01-02T03:04:05Z"},
	{regexp.MustCompile(`sk-sg-[a-z2-7]+`), "sk-sg-SECRET"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "SHA-256"},
	{regexp.MustCompile(`\b[0-9a-f]{12}\b`), "digestdigest"},
	{regexp.MustCompile(`"request_id": "[0-9a-f]+"`), `"request_id": "ID"`},
}

// TestHubCommands is what people see who look after a policy: tables, differences, refusals.
func TestHubCommands(t *testing.T) {
	t.Parallel()
	h := startHub(t, "-import", filepath.Join(lab.root, "test", "testdata", "hub_policy.yaml"))
	datadriven.RunTest(t, filepath.Join("testdata", "hub_cli.txt"), func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "file":
			var name string
			d.ScanArgs(t, "name", &name)
			if err := os.WriteFile(filepath.Join(h.dir, name), []byte(d.Input), 0o600); err != nil {
				t.Fatal(err)
			}
			return ""
		case "run":
			return h.typed(t, d.Input)
		}
		return "there is no " + d.Cmd
	})
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if <-h.exited; h.err != nil {
		t.Errorf("stopped, the hub ends with %v", h.err)
	}
	if strings.Contains(h.out.String(), "sk-sg-") {
		t.Errorf("a secret is in the log: %s", h.out.String())
	}
}

// typed runs lines of commands. What went to standard error begins with "! "; a code that is not 0 stands at the end.
func (h *hubProcess) typed(t *testing.T, lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		out, errs, code := h.run(t, words(line)...)
		b.WriteString(out)
		for e := range strings.Lines(errs) {
			b.WriteString("! " + e)
		}
		if code != 0 {
			fmt.Fprintf(&b, "[%d]\n", code)
		}
	}
	text := strings.NewReplacer(h.url, "HUB", h.dir, "DIR").Replace(b.String())
	for _, a := range always {
		text = a.form.ReplaceAllString(text, a.told)
	}
	return text
}

// words are those of a command line; what stands in single quotes is one.
func words(line string) (list []string) {
	for i, part := range strings.Split(strings.TrimSpace(line), "'") {
		if i%2 == 1 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}

// TestHubOverTheNetworkWantsTLS, and a token file is for its owner alone.
func TestHubOverTheNetworkWantsTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"-tls-cert":           {"-listen", "0.0.0.0:0"},
		"-cert, -key and":     {"-push-listen", "0.0.0.0:0"},
		"go together":         {"-tls-cert", "x"},
		"want a plain name":   {"-new-admin", "../x"},
		"unexpected argument": {"x"},
	} {
		_, errs, code := spokegate(t, append([]string{"hub", "-dir", dir}, args...)...)
		if code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
}

// TestHubStartsAgain with what it had: the same token, the same revisions, and one more admin for who has lost theirs.
func TestHubStartsAgain(t *testing.T) {
	t.Parallel()
	h := startHub(t, "-import", filepath.Join(lab.root, "test", "testdata", "hub_policy.yaml"))
	if st, err := os.Stat(filepath.Join(h.dir, "hub", "admin.token")); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("the first token: %v, %v", st, err)
	}
	if _, errs, code := h.run(t, "team", "create", "night", "-models", "*"); code != 0 {
		t.Fatal(errs)
	}
	if err := h.cmd.Process.Kill(); err != nil { // no farewell
		t.Fatal(err)
	}
	<-h.exited
	again := &up{name: "hub", cmd: command(append(h.cmd.Args[1:], "-new-admin", "second")...), exited: make(chan struct{})}
	again.cmd.Stdout, again.cmd.Stderr = &again.out, &again.out
	if err := again.begin(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = again.cmd.Process.Kill()
		<-again.exited
	}()
	var list []struct{ Number int }
	eventually(t, startPatience, func() error {
		out, errs, code := h.run(t, "revision", "list", "-o", "json", "-token-file", filepath.Join("hub", "second.token"))
		if code != 0 {
			return errors.New(errs)
		}
		return json.Unmarshal([]byte(out), &list)
	})
	if len(list) != 2 || list[0].Number != 2 {
		t.Errorf("revisions: %+v", list)
	}
	if out, errs, code := h.run(t, "team", "show", "night"); code != 0 || !strings.Contains(out, "name: night") {
		t.Errorf("with the first token: %d, %s%s", code, out, errs)
	}
}
