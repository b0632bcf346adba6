package test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is one that was seen in /proc. Its start time tells it from a later one of the same number.
type process struct {
	pid, parent int
	began       string
	args        []string
}

func (p process) String() string { return fmt.Sprintf("%d (%s)", p.pid, strings.Join(p.args, " ")) }

// readProcess is false for a process that is gone, or a zombie.
func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	_, rest, ok := bytes.Cut(stat, []byte(") ")) // the name before may hold spaces
	f := strings.Fields(string(rest))
	if !ok || len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return process{}, false
	}
	parent, _ := strconv.Atoi(f[1])
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
	return process{pid, parent, f[19], args}, true
}

func (p process) alive() bool {
	now, ok := readProcess(p.pid)
	return ok && now.began == p.began
}

func (p process) kill() {
	if p.alive() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
}

// freeze stops a process, and returns when none of its threads runs any more: on a busy machine the signal takes its time.
func (p process) freeze(t testing.TB) {
	t.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, factPatience, func() error {
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.pid))
		for _, s := range stats {
			stat, err := os.ReadFile(s)
			if _, rest, ok := bytes.Cut(stat, []byte(") ")); err == nil && (!ok || rest[0] != 'T') {
				return fmt.Errorf("%v still runs", p)
			}
		}
		return nil
	})
}

func allProcesses() []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var out []process
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		if p, ok := readProcess(pid); ok {
			out = append(out, p)
		}
	}
	return out
}

// descendants are the children of pid, and theirs.
func descendants(pid int) []process {
	children := map[int][]process{}
	for _, p := range allProcesses() {
		children[p.parent] = append(children[p.parent], p)
	}
	var out []process
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			out = append(out, c)
			queue = append(queue, c.pid)
		}
	}
	return out
}

// processesOf are those with this folder in their command line.
func processesOf(dir string) []process {
	var out []process
	for _, p := range allProcesses() {
		if strings.Contains(strings.Join(p.args, "\x00"), dir+"/") || strings.HasSuffix(strings.Join(p.args, "\x00"), dir) {
			out = append(out, p)
		}
	}
	return out
}

// role finds the children of an installation by their subcommand; "envoy" is Envoy.
func (u *up) role(role string) []process {
	var out []process
	for _, p := range descendants(u.cmd.Process.Pid) {
		switch {
		case role == "envoy" && p.args[0] == lab.envoy, len(p.args) > 1 && p.args[0] == lab.binary && p.args[1] == role:
			out = append(out, p)
		}
	}
	return out
}

// the is the only child, or the first, of a role.
func (u *up) the(t testing.TB, role string) process {
	t.Helper()
	found := u.role(role)
	if len(found) == 0 {
		t.Fatalf("%s has no process %q; it has %v", u.name, role, descendants(u.cmd.Process.Pid))
	}
	return found[0]
}

// flag is the value of a flag in a command line; the last word counts.
func (p process) flag(name string) string {
	value := ""
	for i, a := range p.args {
		a = strings.TrimPrefix(strings.TrimPrefix(a, "-"), "-")
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			value = v
		} else if a == name && i+1 < len(p.args) {
			value = p.args[i+1]
		}
	}
	return value
}

// memory is the resident set in bytes.
func (p process) memory(t testing.TB) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// factPatience is for what takes a moment, on a machine that does much else.
const factPatience = 3 * time.Minute

// eventually waits for a fact, and fails with the last reason why it is not so.
func eventually(t testing.TB, patience time.Duration, fact func() error) {
	t.Helper()
	if err := within(patience, fact); err != nil {
		t.Fatal(err)
	}
}

func within(patience time.Duration, fact func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := fact()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not so within %v: %w", patience, err)
		}
		time.Sleep(15 * time.Millisecond)
	}
}
