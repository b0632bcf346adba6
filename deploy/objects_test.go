//go:build kube

package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// objects are those of one rendered shape, by kind.
type objects struct {
	shape     string
	namespace string
	policies  []networkingv1.NetworkPolicy
	workloads []workload
	services  []corev1.Service
	budgets   []policyv1.PodDisruptionBudget
	roles     []rbacv1.Role
	others    map[string][]map[string]any // of kinds that Kubernetes itself does not know
}

// workload is a Deployment, a StatefulSet or a CronJob, which selects nothing.
type workload struct {
	kind     string
	name     string
	selector *metav1.LabelSelector
	pod      corev1.PodTemplateSpec
	claims   []corev1.PersistentVolumeClaim // of a StatefulSet
}

func (w workload) component() string { return w.pod.Labels["app.kubernetes.io/component"] }

// containers are all of the pod, with those that start first.
func (w workload) containers() []corev1.Container {
	return append(append([]corev1.Container(nil), w.pod.Spec.InitContainers...), w.pod.Spec.Containers...)
}

func (w workload) container(t *testing.T, name string) corev1.Container {
	t.Helper()
	for _, c := range w.containers() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("%s has no container %s", w.name, name)
	return corev1.Container{}
}

// shapes reads all of deploy/yaml.
func shapes(t *testing.T) []objects {
	t.Helper()
	files, err := filepath.Glob("yaml/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d shapes, %v", len(files), err)
	}
	var all []objects
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, read(t, strings.TrimSuffix(filepath.Base(f), ".yaml"), text))
	}
	return all
}

// read is strict: a field that Kubernetes does not know fails, where an API server would drop it with a warning.
func read(t *testing.T, shape string, text []byte) objects {
	t.Helper()
	o := objects{shape: shape, namespace: "spokegate", others: map[string][]map[string]any{}}
	if strings.HasPrefix(shape, "hub-") {
		o.namespace = "spokegate-hub"
	}
	docs := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return o
		} else if err != nil {
			t.Fatal(err)
		}
		o.add(t, doc)
	}
}

func (o *objects) add(t *testing.T, doc []byte) {
	t.Helper()
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &head); err != nil {
		t.Fatalf("%s: %v\n%s", o.shape, err, doc)
	}
	strict := func(into any) {
		t.Helper()
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			t.Fatalf("%s: %s: %v", o.shape, head.Kind, err)
		}
	}
	switch head.Kind {
	case "":
		if len(bytes.TrimSpace(doc)) > 0 && !bytes.HasPrefix(doc, []byte("#")) {
			t.Fatalf("%s: no object:\n%s", o.shape, doc)
		}
	case "NetworkPolicy":
		o.policies = append(o.policies, networkingv1.NetworkPolicy{})
		strict(&o.policies[len(o.policies)-1])
	case "Deployment":
		var d appsv1.Deployment
		strict(&d)
		o.workloads = append(o.workloads, workload{head.Kind, d.Name, d.Spec.Selector, d.Spec.Template, nil})
	case "StatefulSet":
		var s appsv1.StatefulSet
		strict(&s)
		o.workloads = append(o.workloads, workload{head.Kind, s.Name, s.Spec.Selector, s.Spec.Template, s.Spec.VolumeClaimTemplates})
	case "CronJob":
		var c batchv1.CronJob
		strict(&c)
		o.workloads = append(o.workloads, workload{head.Kind, c.Name, nil, c.Spec.JobTemplate.Spec.Template, nil})
	case "Service":
		o.services = append(o.services, corev1.Service{})
		strict(&o.services[len(o.services)-1])
	case "PodDisruptionBudget":
		o.budgets = append(o.budgets, policyv1.PodDisruptionBudget{})
		strict(&o.budgets[len(o.budgets)-1])
	case "Role":
		o.roles = append(o.roles, rbacv1.Role{})
		strict(&o.roles[len(o.roles)-1])
	case "ServiceAccount":
		strict(&corev1.ServiceAccount{})
	case "RoleBinding":
		strict(&rbacv1.RoleBinding{})
	case "ConfigMap":
		strict(&corev1.ConfigMap{})
	case "PersistentVolumeClaim":
		strict(&corev1.PersistentVolumeClaim{})
	default:
		other := map[string]any{}
		strict(&other)
		o.others[head.Kind] = append(o.others[head.Kind], other)
	}
}
