package doctor

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	lowDisk   = 2 << 30
	fullDisk  = 128 << 20
	fewFiles  = 4096
	mostFiles = 10_000 // in a role's folder that are looked at
)

// secretFlags name files that nobody else may read.
var secretFlags = []string{"join-token-file", "seed-file", "hub-token-file", "push-token-file", "kafka-password-file",
	"tls-key", "fleet-key", "hub-key", "kafka-key", "key"}

// checkFiles looks at what roles keep on this machine.
func checkFiles(_ context.Context, e *exam) {
	var folders, secrets []string
	for _, dir := range e.Dirs {
		if dir, err := filepath.Abs(dir); err == nil {
			folders = append(folders, dir)
		}
	}
	for _, p := range e.of("door", "epp", "worker", "hub") {
		if !p.here {
			continue
		}
		folders = append(folders, p.path("dir"))
		for _, name := range secretFlags {
			secrets = append(secrets, p.path(name))
		}
	}
	for _, d := range unique(folders) {
		e.judgeFolder(d)
	}
	for _, s := range unique(secrets) {
		e.judgeSecret(s)
	}
	for _, g := range e.gateways {
		e.envoysFiles(g)
	}
}

// judgeFolder looks at who may enter a folder, what is in it, and what room there is.
func (e *exam) judgeFolder(dir string) {
	st, err := os.Stat(dir)
	if err != nil {
		return // of a process that has none, or on a disk that is not here
	}
	mode := st.Mode().Perm()
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" { // a pod's volumes are its own, whatever their mode: a kubelet makes an emptyDir open to all
		e.say("folder-open", dir, mode&0o002 != 0, "its mode is %04o", mode)
		if mode&0o001 != 0 {
			e.secretsIn(dir)
		}
	}
	var disk syscall.Statfs_t
	if syscall.Statfs(dir, &disk) != nil {
		return
	}
	free := disk.Bavail * uint64(disk.Bsize)
	id := "disk-low"
	if free < fullDisk {
		id = "disk-full"
	}
	e.say(id, dir, free < lowDisk, "%d MiB are free", free>>20)
}

// secretsIn looks for files in an open folder that have secrets by their names.
func (e *exam) secretsIn(dir string) {
	seen := 0
	_ = filepath.WalkDir(dir, func(path string, f fs.DirEntry, err error) error {
		if seen++; seen > mostFiles {
			return fs.SkipAll
		}
		if err != nil {
			return nil
		}
		if n := f.Name(); !f.IsDir() && (strings.HasSuffix(n, ".key") || strings.HasSuffix(n, "token") || n == "env") {
			e.judgeSecret(path)
		}
		return nil
	})
}

func (e *exam) judgeSecret(path string) {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return
	}
	mode := st.Mode().Perm()
	e.say("secret-open", path, mode&0o007 != 0, "its mode is %04o", mode)
}

// envoysFiles finds Envoy's process by the configuration that it was started with.
func (e *exam) envoysFiles(g *gateway) {
	if g.err != nil || g.door == nil || !g.door.here {
		return
	}
	pid := listening(g.admin)
	if pid == "" {
		return // another user's, or another namespace's
	}
	if most := maxFiles(pid); most > 0 {
		e.say("envoy-files", g.where(), most < 2*fewFiles, "it may have %d files", most)
	}
}
