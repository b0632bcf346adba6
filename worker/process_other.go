//go:build unix && !linux

package worker

import "syscall"

// ownGroup gives the child a process group. A shim that is killed leaves the child behind: only Linux can end it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
