package worker

import "syscall"

// ownGroup gives the child a process group, and ends it when the shim dies in any way.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
