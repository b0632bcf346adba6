package rig

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// environment is what a container of a pod finds in its environment: of each name the last value counts.
func (p *pod) environment(ctx context.Context, spec *corev1.Container) (map[string]string, error) {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": p.Name,
		"KUBERNETES_SERVICE_HOST": apiService, "KUBERNETES_SERVICE_PORT": "443",
	}
	if len(spec.EnvFrom) > 0 {
		return nil, fmt.Errorf("envFrom is more than this kubelet knows")
	}
	for _, e := range spec.Env {
		value := expand(e.Value, env)
		if from := e.ValueFrom; from != nil {
			var err error
			if value, err = p.valueFrom(ctx, from); err != nil {
				return nil, fmt.Errorf("env %s: %w", e.Name, err)
			}
		}
		env[e.Name] = value
	}
	return env, nil
}

func (p *pod) valueFrom(ctx context.Context, from *corev1.EnvVarSource) (string, error) {
	switch {
	case from.FieldRef != nil:
		return p.field(from.FieldRef.FieldPath)
	case from.SecretKeyRef != nil:
		s, err := p.node.c.Client.CoreV1().Secrets(p.Namespace).Get(ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		v, ok := s.Data[from.SecretKeyRef.Key]
		if !ok {
			return "", fmt.Errorf("the secret %s has no %s", s.Name, from.SecretKeyRef.Key)
		}
		return string(v), nil
	case from.ConfigMapKeyRef != nil:
		m, err := p.node.c.Client.CoreV1().ConfigMaps(p.Namespace).Get(ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		v, ok := m.Data[from.ConfigMapKeyRef.Key]
		if !ok {
			return "", fmt.Errorf("the ConfigMap %s has no %s", m.Name, from.ConfigMapKeyRef.Key)
		}
		return v, nil
	}
	return "", fmt.Errorf("a source that this kubelet does not know")
}

// field is a field of the pod, as the downward API names it.
func (p *pod) field(path string) (string, error) {
	if key, ok := strings.CutPrefix(path, "metadata.annotations['"); ok {
		return p.Annotations[strings.TrimSuffix(key, "']")], nil
	}
	if key, ok := strings.CutPrefix(path, "metadata.labels['"); ok {
		return p.Labels[strings.TrimSuffix(key, "']")], nil
	}
	v, ok := map[string]string{
		"metadata.name": p.Name, "metadata.namespace": p.Namespace, "metadata.uid": string(p.UID), "spec.nodeName": p.Spec.NodeName,
		"spec.serviceAccountName": p.Spec.ServiceAccountName, "status.podIP": p.box.IP, "status.podIPs": p.box.IP, "status.hostIP": nodeAddress,
	}[path]
	if !ok {
		return "", fmt.Errorf("the field %s is more than this kubelet knows", path)
	}
	return v, nil
}

// expand puts variables into the place of $(NAME), as Kubernetes does: $$ is a dollar, an unknown name stays.
func expand(s string, env map[string]string) string {
	var b strings.Builder
	for s != "" {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			break
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			s = after[1:]
		case strings.HasPrefix(after, "(") && closed:
			if v, ok := env[name]; ok {
				b.WriteString(v)
			} else {
				b.WriteString("$(" + name + ")")
			}
			s = rest
		default:
			b.WriteByte('$')
			s = after
		}
	}
	return b.String()
}
