//go:build unix && !linux

package worker

import "syscall"

// ownGroup gives the child a process group. A shim that is killed leaves the child behind: only Linux can end it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func oomKills() uint64 { return 0 }

func adoptOrphans() {}

func diesWithParent() *syscall.SysProcAttr { return nil }

// killDescendants reaches those that stayed in the guard's process group, and the guard with them.
func killDescendants() { _ = syscall.Kill(0, syscall.SIGKILL) }
