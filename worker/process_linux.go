package worker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ownGroup gives the child a process group, and ends it when the shim dies in any way.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// oomKills is how many processes the kernel has killed in this control group for want of memory; 0 where nobody says.
func oomKills() uint64 {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(groups)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		events, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "memory.events"))
		for line := range strings.Lines(string(events)) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
				kills, _ := strconv.ParseUint(n, 10, 64)
				return kills
			}
		}
	}
	return 0
}
