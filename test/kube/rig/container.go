package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// container is what one is made of, told to a copy of this binary that becomes it.
type container struct {
	Root         string // an empty folder: its root is made there, in memory
	ReadOnlyRoot bool
	Mounts       []mount // parents before children
	Hostname     string
	UID, GID     int
	Groups       []int
	Dir          string
	Argv, Env    []string // Argv[0] is a path in the container
}

// mount is a file or a folder of the node in a container; without a source, a new one in memory.
type mount struct {
	Source, Target string
	ReadOnly       bool
}

// specFile names the file that says which container to become.
const specFile = "SPOKEGATE_RIG_CONTAINER"

// becomeContainer gives this process, which has namespaces of its own, the root, the user and the rights of a container, and
// then runs its program in its place. It comes back only with an error.
func becomeContainer() error {
	runtime.LockOSThread() // rights are a thread's, and the program runs on with this one's
	text, err := os.ReadFile(os.Getenv(specFile))
	if err != nil {
		return err
	}
	var c container
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("hostname: %w", err)
	}
	if err := c.makeRoot(); err != nil {
		return err
	}
	if err := c.giveUpRights(); err != nil {
		return err
	}
	if err := os.Chdir(c.Dir); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", c.Argv[0], syscall.Exec(c.Argv[0], c.Argv, c.Env))
}

func (c *container) makeRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", c.Root, "tmpfs", 0, "mode=0755,size=64m"); err != nil {
		return err
	}
	for _, dir := range []string{"proc", "tmp", ".node"} {
		if err := os.Mkdir(filepath.Join(c.Root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(c.Root, "tmp"), 0o1777); err != nil {
		return err
	}
	if err := unix.Mount("proc", filepath.Join(c.Root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for _, m := range c.Mounts {
		if err := m.in(c.Root); err != nil {
			return fmt.Errorf("%s at %s: %w", m.Source, m.Target, err)
		}
	}
	if err := unix.PivotRoot(c.Root, filepath.Join(c.Root, ".node")); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/.node", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := os.Remove("/.node"); err != nil {
		return err
	}
	if c.ReadOnlyRoot {
		return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

func (m mount) in(root string) error {
	target := filepath.Join(root, m.Target)
	if m.Source == "" {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		return unix.Mount("tmpfs", target, "tmpfs", 0, "mode=1777,size=64m")
	}
	st, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	if st.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		var f *os.File
		if f, err = os.OpenFile(target, os.O_CREATE, 0o644); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(m.Source, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if m.ReadOnly {
		return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

// giveUpRights drops every capability for good, and becomes the container's user.
func (c *container) giveUpRights() error {
	for capability := range uintptr(unix.CAP_LAST_CAP + 1) {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := syscall.Setgroups(c.Groups); err != nil {
		return err
	}
	if err := syscall.Setresgid(c.GID, c.GID, c.GID); err != nil {
		return err
	}
	return syscall.Setresuid(c.UID, c.UID, c.UID) // the last capabilities go with it
}

// pause holds a pod's namespaces, and buries what is orphaned in them, until it is killed.
func pause() error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for range children {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}
	return nil
}
