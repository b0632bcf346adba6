package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// running is one life of a container.
type running struct {
	pod  *pod
	spec *corev1.Container
	made container
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended, and code is set
	code int
}

// start starts a container of the pod. Its output goes to a file of its name.
func (p *pod) start(ctx context.Context, spec *corev1.Container) (*running, error) {
	c, err := p.make(ctx, spec)
	if err != nil {
		return nil, err
	}
	r := &running{pod: p, spec: spec, made: *c, done: make(chan struct{})}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	made := filepath.Join(p.dir, spec.Name+".json")
	if err := os.WriteFile(made, text, 0o600); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(p.log(spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	r.cmd = again("container")
	r.cmd.Env = append(r.cmd.Env, specFile+"="+made)
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = nil, log, log
	if err := p.box.start(r.cmd); err != nil {
		return nil, err
	}
	go func() {
		err := r.cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			r.code = exit.ExitCode()
			if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				r.code = 128 + int(ws.Signal())
			}
		} else if err != nil {
			r.code = 255
		}
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) // what it leaves behind ends with it
		close(r.done)
	}()
	return r, nil
}

func (p *pod) log(container string) string { return filepath.Join(p.dir, container+".log") }

// make puts together what a container is made of.
func (p *pod) make(ctx context.Context, spec *corev1.Container) (*container, error) {
	img, err := p.node.image(spec.Image)
	if err != nil {
		return nil, err
	}
	env, err := p.environment(ctx, spec)
	if err != nil {
		return nil, err
	}
	c := &container{Root: filepath.Join(p.dir, "roots", spec.Name), Hostname: p.Name, Dir: "/", UID: img.uid, GID: img.uid}
	if err := os.MkdirAll(c.Root, 0o755); err != nil {
		return nil, err
	}
	if err := c.secure(p.Spec.SecurityContext, spec.SecurityContext); err != nil {
		return nil, err
	}
	command := img.entrypoint
	if len(spec.Command) > 0 {
		command = spec.Command
	}
	for _, a := range slices.Concat(command, spec.Args) {
		c.Argv = append(c.Argv, expand(a, env))
	}
	if !strings.HasPrefix(c.Argv[0], "/") {
		c.Argv[0] = "/usr/local/bin/" + c.Argv[0]
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		c.Env = append(c.Env, name+"="+env[name])
	}
	if spec.WorkingDir != "" {
		c.Dir = spec.WorkingDir
	}
	c.Mounts, err = p.mounts(spec, img)
	return c, err
}

// secure takes over what security contexts say; the container's counts over the pod's.
func (c *container) secure(pod *corev1.PodSecurityContext, own *corev1.SecurityContext) error {
	var user, group *int64
	notRoot := false
	if pod != nil {
		user, group = pod.RunAsUser, pod.RunAsGroup
		notRoot = pod.RunAsNonRoot != nil && *pod.RunAsNonRoot
		if pod.FSGroup != nil {
			c.Groups = append(c.Groups, int(*pod.FSGroup))
		}
		for _, g := range pod.SupplementalGroups {
			c.Groups = append(c.Groups, int(g))
		}
	}
	if own != nil {
		if own.RunAsUser != nil {
			user = own.RunAsUser
		}
		if own.RunAsGroup != nil {
			group = own.RunAsGroup
		}
		c.ReadOnlyRoot = own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem
	}
	if user != nil {
		c.UID = int(*user)
	}
	if group != nil {
		c.GID = int(*group)
	}
	if notRoot && c.UID == 0 {
		return errors.New("it would run as root")
	}
	return nil
}

// mounts are the image's files, the node's, and the volumes, parents first.
func (p *pod) mounts(spec *corev1.Container, img image) ([]mount, error) {
	mounts := []mount{
		{filepath.Join(p.node.dir, "passwd"), "/etc/passwd", true},
		{filepath.Join(p.dir, "resolv.conf"), "/etc/resolv.conf", true},
		{filepath.Join(p.dir, "hosts"), "/etc/hosts", true},
		{"", "/dev/shm", false},
	}
	for _, d := range devices {
		mounts = append(mounts, mount{d, d, false})
	}
	for target, source := range img.files {
		mounts = append(mounts, mount{source, target, true})
	}
	for _, v := range spec.VolumeMounts {
		dir, ok := p.volumes[v.Name]
		if !ok {
			return nil, fmt.Errorf("there is no volume %s", v.Name)
		}
		if v.SubPath != "" { // made where it is missing, with the volume's rights
			dir = filepath.Join(dir, v.SubPath)
			if err := os.MkdirAll(dir, 0o777); err != nil {
				return nil, err
			}
			if err := p.own(dir, 0o777); err != nil {
				return nil, err
			}
		}
		mounts = append(mounts, mount{dir, v.MountPath, v.ReadOnly})
	}
	slices.SortStableFunc(mounts, func(a, b mount) int { return len(a.Target) - len(b.Target) })
	return mounts, nil
}

// end ends a container gracefully: its hook, SIGTERM, and after the deadline SIGKILL.
func (r *running) end(deadline time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if l := r.spec.Lifecycle; l != nil && l.PreStop != nil {
		r.hook(ctx, l.PreStop)
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.done:
	case <-ctx.Done():
		_ = r.cmd.Process.Kill()
		<-r.done
	}
}

// hook runs a hook before the end; one that fails is passed over, as in a cluster.
func (r *running) hook(ctx context.Context, h *corev1.LifecycleHandler) {
	switch {
	case h.Sleep != nil:
		pauseFor(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
	case h.Exec != nil:
		_ = r.run(ctx, h.Exec.Command)
	case h.HTTPGet != nil:
		_ = r.get(ctx, h.HTTPGet)
	}
}
