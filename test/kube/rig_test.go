//go:build kube

package kube

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/spokegate/spokegate/test/kube/rig"
)

// TestRigIsStrict: what it takes for good is what a strict API server takes for good.
func TestRigIsStrict(t *testing.T) {
	ns := cluster.Namespace(t, "strict")
	for name, text := range map[string]string{
		"unknown field":        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {prots: [{port: 1}]}",
		"unknown field of CRD": "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: a}\nspec: {gatewayClassName: a, listener: []}",
		"key twice":            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b, a: c}",
		"root":                 "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a}]}",
	} {
		_, err := cluster.Apply(t.Context(), ns, "a.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "a.yaml: ") {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Log(err)
		}
	}
}

// TestRigAccounts: an account may what its role grants and no more, the audit log tells of both, and an API server that was
// killed comes back with all it had.
func TestRigAccounts(t *testing.T) {
	ns := cluster.Namespace(t, "accounts")
	cluster.MustApply(t, ns, "role.yaml", []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: picker}]
`))
	as, err := kubernetes.NewForConfig(cluster.As(t, ns, "picker"))
	if err != nil {
		t.Fatal(err)
	}
	list := func() error {
		_, err := as.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		return err
	}
	rig.Eventually(t, list) // the authorizer sees the role a moment later
	if _, err := as.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("secrets: %v", err)
	}
	codes := map[string]int{}
	for _, c := range cluster.Calls(t, ns, "picker") {
		codes[c.Verb+" "+c.Resource] = c.Code
	}
	if codes["list pods"] != 200 || codes["list secrets"] != 403 {
		t.Fatalf("the audit log tells of %v", codes)
	}
	cluster.StopAPI(t)
	if err := list(); err == nil {
		t.Fatal("a dead API server answered")
	}
	cluster.StartAPI(t)
	rig.Eventually(t, list)
}
