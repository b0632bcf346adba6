package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listening is the id of the process that listens at a TCP port of this machine, by the number of its socket; empty: it cannot be
// found, as that of another user, or on a system without /proc.
func listening(address string) (pid string) {
	port, err := strconv.ParseUint(address[strings.LastIndexByte(address, ':')+1:], 10, 16)
	if err != nil {
		return ""
	}
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, _ := os.ReadFile(table)
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line) // number, local, remote, state, …, socket
			if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == listens {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, f := range files {
		if target, err := os.Readlink(f); err == nil && sockets[target] {
			return strings.Split(f, "/")[2]
		}
	}
	return ""
}

// listens is the kernel's TCP_LISTEN.
const listens = "0A"

// maxFiles is how many files a process may have open; 0: it is not known.
func maxFiles(pid string) uint64 {
	data, _ := os.ReadFile("/proc/" + pid + "/limits")
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			n, _ := strconv.ParseUint(strings.Fields(rest)[0], 10, 64) // "unlimited" is not possible here
			return n
		}
	}
	return 0
}
