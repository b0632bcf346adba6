package rig

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Enough holds what a service account has asked for against what the roles bound to it in the namespace grant, and fails the test for
// each call that was forbidden, and for each verb on a resource that is granted and was never used, but for those excepted, each as
// "verb resource".
func (c *Cluster) Enough(t testing.TB, namespace, account string, except ...string) {
	t.Helper()
	granted, err := c.granted(t.Context(), namespace, account)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, call := range c.Calls(t, namespace, account) {
		if call.Code == http.StatusForbidden {
			t.Errorf("forbidden: %s", call)
			continue
		}
		if call.Resource != "" {
			used[call.Verb+" "+resource(call.Group, call.Resource)] = true
		}
	}
	for _, g := range granted {
		if !used[g] && !slices.Contains(except, g) {
			t.Errorf("%s may %s, and never did; it used %v", account, g, used)
		}
	}
	if len(granted) == 0 && len(used) > 0 {
		t.Errorf("%s has no role, and used %v", account, used)
	}
}

func resource(group, name string) string {
	if group == "" {
		return name
	}
	return name + "." + group
}

// granted are the verbs and resources of all roles that are bound to an account, sorted. Roles of the whole cluster fail: nothing of
// ours needs one.
func (c *Cluster) granted(ctx context.Context, namespace, account string) ([]string, error) {
	var all []string
	is := func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Name == account && (s.Namespace == namespace || s.Namespace == "")
	}
	wide, err := c.Client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, b := range wide.Items {
		if slices.ContainsFunc(b.Subjects, is) {
			return nil, fmt.Errorf("%s has a role in all namespaces, by %s", account, b.Name)
		}
	}
	bindings, err := c.Client.RbacV1().RoleBindings(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, b := range bindings.Items {
		if !slices.ContainsFunc(b.Subjects, is) {
			continue
		}
		if b.RoleRef.Kind != "Role" {
			return nil, fmt.Errorf("%s: a %s is bound to %s", b.Name, b.RoleRef.Kind, account)
		}
		role, err := c.Client.RbacV1().Roles(namespace).Get(ctx, b.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		for _, r := range role.Rules {
			for _, group := range r.APIGroups {
				for _, name := range r.Resources {
					for _, verb := range r.Verbs {
						all = append(all, verb+" "+resource(group, name))
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
