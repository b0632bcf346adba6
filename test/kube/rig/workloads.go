package rig

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TryPods has the API server's admission judge a pod of each Deployment and StatefulSet of the namespace; none is made.
func (n *Node) TryPods(t testing.TB, namespace string) {
	t.Helper()
	if err := n.createPods(t.Context(), namespace, metav1.DryRunAll); err != nil {
		t.Fatal(err)
	}
}

// CreatePods does what the controllers of Deployments and StatefulSets and the scheduler would: each of the namespace gets the pods
// that it lacks. It is not done again until it is called again.
func (n *Node) CreatePods(t testing.TB, namespace string) {
	t.Helper()
	if err := n.createPods(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
}

func (n *Node) createPods(ctx context.Context, namespace string, dryRun ...string) error {
	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun}
	apps := n.c.Client.AppsV1()
	deployments, err := apps.Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	sets, err := apps.StatefulSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	there, err := n.c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range deployments.Items {
		if err := n.fillDeployment(ctx, &deployments.Items[i], there.Items, options); err != nil {
			return err
		}
	}
	for i := range sets.Items {
		if err := n.fillSet(ctx, &sets.Items[i], options); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) fillDeployment(ctx context.Context, d *appsv1.Deployment, pods []corev1.Pod, options metav1.CreateOptions) error {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return err
	}
	have := int32(0)
	for _, p := range pods {
		if p.DeletionTimestamp == nil && selector.Matches(labels.Set(p.Labels)) {
			have++
		}
	}
	owner := *metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment")) // in a cluster its ReplicaSet
	for ; have < *d.Spec.Replicas; have++ {
		p := podOf(&d.Spec.Template, owner)
		p.GenerateName = d.Name + "-"
		if _, err := n.c.Client.CoreV1().Pods(d.Namespace).Create(ctx, p, options); err != nil {
			return fmt.Errorf("deployment %s: %w", d.Name, err)
		}
	}
	return nil
}

func (n *Node) fillSet(ctx context.Context, s *appsv1.StatefulSet, options metav1.CreateOptions) error {
	owner := *metav1.NewControllerRef(s, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	for i := range *s.Spec.Replicas {
		p := podOf(&s.Spec.Template, owner)
		p.Name = fmt.Sprintf("%s-%d", s.Name, i)
		p.Spec.Hostname, p.Spec.Subdomain = p.Name, s.Spec.ServiceName
		p.Labels["statefulset.kubernetes.io/pod-name"] = p.Name
		p.Labels["apps.kubernetes.io/pod-index"] = fmt.Sprint(i)
		for _, claim := range s.Spec.VolumeClaimTemplates {
			c := claim.DeepCopy()
			c.Name = claim.Name + "-" + p.Name
			_, err := n.c.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Create(ctx, c, options)
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("claim %s: %w", c.Name, err)
			}
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name},
			}})
		}
		_, err := n.c.Client.CoreV1().Pods(s.Namespace).Create(ctx, p, options)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("stateful set %s: %w", s.Name, err)
		}
	}
	return nil
}

func podOf(template *corev1.PodTemplateSpec, owner metav1.OwnerReference) *corev1.Pod {
	t := template.DeepCopy()
	p := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	p.OwnerReferences = []metav1.OwnerReference{owner}
	p.Spec.NodeName = nodeName
	return p
}

// AwaitReady waits until a namespace has this many pods that match a selector and are ready, and no others of it. It gives them.
func (n *Node) AwaitReady(t testing.TB, namespace, selector string, count int) []corev1.Pod {
	t.Helper()
	var ready []corev1.Pod
	Eventually(t, func() error {
		pods, err := n.c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		ready = pods.Items
		var errs []error
		for i := range ready {
			if !Ready(&ready[i]) {
				errs = append(errs, fmt.Errorf("%s is not ready", ready[i].Name))
			}
		}
		if len(ready) != count {
			errs = append(errs, fmt.Errorf("%d pods of %s, want %d", len(ready), selector, count))
		}
		return errors.Join(errs...)
	})
	return ready
}

// DeletePod deletes a pod gracefully and waits until it is gone.
func (n *Node) DeletePod(t testing.TB, namespace, name string) {
	t.Helper()
	pods := n.c.Client.CoreV1().Pods(namespace)
	if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	Eventually(t, func() error {
		_, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("%s is still there", name)
	})
}
