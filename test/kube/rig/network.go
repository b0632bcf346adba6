package rig

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const bridge = "pods"

// makeBridge is the node's network: its own address, and a switch for pods.
func makeBridge() error {
	for _, args := range [][]string{
		{"link", "add", bridge, "type", "bridge"},
		{"addr", "add", nodeAddress + "/16", "dev", bridge},
		{"link", "set", bridge, "up"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

// sandbox is a pod's namespaces and its address, held by a process that does nothing else.
type sandbox struct {
	pause  *exec.Cmd
	IP     string
	shared bool // processes of all containers see each other
}

// newSandbox makes the namespaces and the address of a pod, the number-th of the node.
func newSandbox(number int, shared bool) (*sandbox, error) {
	s := &sandbox{pause: again("pause"), IP: fmt.Sprintf("10.244.%d.%d", 1+number/250, 1+number%250), shared: shared}
	s.pause.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL, Setpgid: true,
	}
	if err := startPinned(s.pause); err != nil {
		return nil, err
	}
	pid, outside := fmt.Sprint(s.pause.Process.Pid), fmt.Sprintf("pod%d", number)
	steps := [][]string{
		{"ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"ip", "link", "set", outside, "master", bridge, "up"},
		{"nsenter", "-t", pid, "-n", "ip", "addr", "add", s.IP + "/16", "dev", "eth0"},
		{"nsenter", "-t", pid, "-n", "ip", "link", "set", "eth0", "up"},
		{"nsenter", "-t", pid, "-n", "ip", "link", "set", "lo", "up"},
		{"nsenter", "-t", pid, "-n", "ip", "route", "add", "default", "via", nodeAddress},
	}
	for _, step := range steps {
		if out, err := exec.Command(step[0], step[1:]...).CombinedOutput(); err != nil {
			s.close()
			return nil, fmt.Errorf("%v: %w: %s", step, err, out)
		}
	}
	return s, nil
}

// start starts a container's process in the pod's namespaces. It does not die with this process, but with the pod's first one or
// with the namespace that all of this is in.
func (s *sandbox) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS, Setsid: true}
	join := []struct {
		name string
		flag int
	}{{"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC}}
	if s.shared {
		join = append(join, struct {
			name string
			flag int
		}{"pid", unix.CLONE_NEWPID})
	} else {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWPID
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never back: the thread, whose namespaces are changed, ends with the goroutine
		for _, j := range join {
			f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", s.pause.Process.Pid, j.name))
			if err == nil {
				err = unix.Setns(int(f.Fd()), j.flag)
				_ = f.Close()
			}
			if err != nil {
				done <- fmt.Errorf("entering the pod's %s namespace: %w", j.name, err)
				return
			}
		}
		done <- cmd.Start()
	}()
	return <-done
}

func (s *sandbox) close() { _ = end(s.pause, syscall.SIGKILL) }
