package rig

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// file is one of a volume that the API server's objects fill.
type file struct {
	data []byte
	mode fs.FileMode
}

// volume makes one of the pod's volumes, and gives its folder on the node.
func (p *pod) volume(ctx context.Context, v *corev1.Volume) (string, error) {
	dir := filepath.Join(p.dir, "volumes", v.Name)
	if claim := v.PersistentVolumeClaim; claim != nil { // outlives the pod
		dir = filepath.Join(p.node.dir, "claims", p.Namespace, claim.ClaimName)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	if v.EmptyDir != nil || v.PersistentVolumeClaim != nil {
		return dir, p.own(dir, 0o777)
	}
	files, err := p.files(ctx, v)
	if err != nil {
		return "", fmt.Errorf("volume %s: %w", v.Name, err)
	}
	// As a kubelet does it: the files of one version in a folder of their own, that a link names.
	version := "..1"
	for _, name := range slices.Sorted(maps.Keys(files)) {
		at := filepath.Join(dir, version, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(at, files[name].data, files[name].mode); err != nil {
			return "", err
		}
		if err := p.own(at, files[name].mode); err != nil {
			return "", err
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return dir, os.Symlink(version, filepath.Join(dir, "..data"))
}

// own gives the pod's group a file or folder, as fsGroup says.
func (p *pod) own(path string, mode fs.FileMode) error {
	if s := p.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		if err := os.Chown(path, 0, int(*s.FSGroup)); err != nil {
			return err
		}
		mode |= mode & 0o700 >> 3
	}
	return os.Chmod(path, mode) // whatever the umask
}

func (p *pod) files(ctx context.Context, v *corev1.Volume) (map[string]file, error) {
	files := map[string]file{}
	switch {
	case v.ConfigMap != nil:
		return files, p.fromConfigMap(ctx, files, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.DefaultMode, v.ConfigMap.Optional)
	case v.Secret != nil:
		return files, p.fromSecret(ctx, files, v.Secret.SecretName, v.Secret.Items, v.Secret.DefaultMode, v.Secret.Optional)
	case v.DownwardAPI != nil:
		return files, p.fromFields(files, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if err := p.project(ctx, files, &s, v.Projected.DefaultMode); err != nil {
				return nil, err
			}
		}
		return files, nil
	}
	return nil, fmt.Errorf("a kind that this kubelet does not know")
}

func (p *pod) project(ctx context.Context, files map[string]file, s *corev1.VolumeProjection, mode *int32) error {
	switch {
	case s.ServiceAccountToken != nil:
		t := s.ServiceAccountToken
		request := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{
			ExpirationSeconds: t.ExpirationSeconds,
			BoundObjectRef:    &authv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID},
		}}
		if t.Audience != "" {
			request.Spec.Audiences = []string{t.Audience}
		}
		r, err := p.node.c.Client.CoreV1().ServiceAccounts(p.Namespace).CreateToken(ctx, p.Spec.ServiceAccountName, request, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o600)
		if own := p.Spec.SecurityContext; own == nil || own.FSGroup == nil {
			mode = 0o644 // a kubelet gives it to the user of the containers, where they have one, and else to all
		}
		files[t.Path] = file{[]byte(r.Status.Token), mode}
		return nil
	case s.ConfigMap != nil:
		return p.fromConfigMap(ctx, files, s.ConfigMap.Name, s.ConfigMap.Items, mode, s.ConfigMap.Optional)
	case s.Secret != nil:
		return p.fromSecret(ctx, files, s.Secret.Name, s.Secret.Items, mode, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return p.fromFields(files, s.DownwardAPI.Items, mode)
	}
	return fmt.Errorf("a projection that this kubelet does not know")
}

func (p *pod) fromConfigMap(ctx context.Context, files map[string]file, name string, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	m, err := p.node.c.Client.CoreV1().ConfigMaps(p.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return unless(optional, err)
	}
	data := map[string][]byte{}
	for k, v := range m.Data {
		data[k] = []byte(v)
	}
	maps.Copy(data, m.BinaryData)
	return pick(files, data, items, mode)
}

func (p *pod) fromSecret(ctx context.Context, files map[string]file, name string, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	s, err := p.node.c.Client.CoreV1().Secrets(p.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return unless(optional, err)
	}
	return pick(files, s.Data, items, mode)
}

func (p *pod) fromFields(files map[string]file, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, i := range items {
		if i.FieldRef == nil {
			return fmt.Errorf("%s: only fields are known to this kubelet", i.Path)
		}
		v, err := p.field(i.FieldRef.FieldPath)
		if err != nil {
			return err
		}
		files[i.Path] = file{[]byte(v), modeOf(i.Mode, mode)}
	}
	return nil
}

func unless(optional *bool, err error) error {
	if optional != nil && *optional {
		return nil
	}
	return err
}

func pick(files map[string]file, data map[string][]byte, items []corev1.KeyToPath, mode *int32) error {
	if len(items) == 0 {
		for k, v := range data {
			files[k] = file{v, modeOf(nil, mode)}
		}
	}
	for _, i := range items {
		v, ok := data[i.Key]
		if !ok {
			return fmt.Errorf("there is no key %s", i.Key)
		}
		files[i.Path] = file{v, modeOf(i.Mode, mode)}
	}
	return nil
}

func modeOf(own, all *int32) fs.FileMode {
	switch {
	case own != nil:
		return fs.FileMode(*own)
	case all != nil:
		return fs.FileMode(*all)
	}
	return 0o644
}
