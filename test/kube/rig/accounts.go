package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Namespace makes a namespace in which the API server's own admission holds pods to the restricted security standard, with what
// controllers put into every namespace: the account default and the API server's certificate as a ConfigMap.
func (c *Cluster) Namespace(t testing.TB, purpose string) string {
	t.Helper()
	c.mu.Lock()
	c.namespaces++
	name := fmt.Sprintf("%s-%d", purpose, c.namespaces)
	c.mu.Unlock()
	ctx := t.Context()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if _, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.account(t, name, "default")
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(c.ca)}}
	if _, err := c.Client.CoreV1().ConfigMaps(name).Create(ctx, ca, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

func (c *Cluster) account(t testing.TB, namespace, name string) {
	t.Helper()
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := c.Client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), a, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// Token is a real one of a service account, which is made if it is not there. It lives for an hour.
func (c *Cluster) Token(t testing.TB, namespace, account string) string {
	t.Helper()
	c.account(t, namespace, account)
	seconds := int64(time.Hour / time.Second)
	r, err := c.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
		&authv1.TokenRequest{Spec: authv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// As is a client's configuration with the token of a service account and nothing else: RBAC says what it may.
func (c *Cluster) As(t testing.TB, namespace, account string) *rest.Config {
	t.Helper()
	return &rest.Config{Host: c.Admin.Host, BearerToken: c.Token(t, namespace, account), TLSClientConfig: c.Admin.TLSClientConfig}
}

// Kubeconfig writes a client's configuration as a file, for processes that are not in a pod.
func (c *Cluster) Kubeconfig(t testing.TB, as *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	k := clientcmdapi.NewConfig()
	k.Clusters["rig"] = &clientcmdapi.Cluster{Server: as.Host, CertificateAuthorityData: c.ca}
	k.AuthInfos["account"] = &clientcmdapi.AuthInfo{Token: as.BearerToken}
	k.Contexts["rig"] = &clientcmdapi.Context{Cluster: "rig", AuthInfo: "account"}
	k.CurrentContext = "rig"
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Folder writes what a pod finds at /var/run/secrets/kubernetes.io/serviceaccount, for a process that is not in a pod.
func (c *Cluster) Folder(t testing.TB, namespace, account string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"token": c.Token(t, namespace, account), "ca.crt": string(c.ca), "namespace": namespace} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
