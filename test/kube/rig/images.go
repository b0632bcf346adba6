package rig

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// image is what stands for a container's image: files of this machine, and what they start.
type image struct {
	files      map[string]string // path in the container → on the node
	entrypoint []string
	uid        int
}

// libraries of this machine, which the images' programs are linked with.
var libraries = []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64"}

// Binary is the one that is tested.
func (n *Node) Binary() string {
	return cmp.Or(os.Getenv("SPOKEGATE_BINARY"), filepath.Join(n.c.root, "bin", "spokegate"))
}

// findImages finds what deploy/Containerfile puts into its images: the binary that `make build` built (or SPOKEGATE_BINARY names),
// and Envoy. Of a distribution there is nothing else: no shell.
func (n *Node) findImages() error {
	program := n.Binary()
	envoy := cmp.Or(os.Getenv("SPOKEGATE_ENVOY"), filepath.Join(n.c.root, ".tools", "envoy", "envoy"))
	for _, file := range []string{program, envoy} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("run `make build envoy` first: %w", err)
		}
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n",
	} {
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	one := image{files: map[string]string{"/usr/local/bin/spokegate": program}, entrypoint: []string{"/usr/local/bin/spokegate"}, uid: 65532}
	for _, l := range libraries {
		if _, err := os.Stat(l); err == nil {
			one.files[l] = l
		}
	}
	both := one
	both.files = maps.Clone(one.files)
	both.files["/usr/local/bin/envoy"] = envoy
	n.images = map[string]image{"spokegate": one, "spokegate-envoy": both}
	return nil
}

// image finds what stands for an image, by the last part of its name.
func (n *Node) image(name string) (image, error) {
	name, _, _ = strings.Cut(name, "@")
	base := name[strings.LastIndex(name, "/")+1:]
	base, _, _ = strings.Cut(base, ":")
	i, ok := n.images[base]
	if !ok {
		return image{}, fmt.Errorf("nothing stands for the image %s", name)
	}
	return i, nil
}

// devices of every container.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
