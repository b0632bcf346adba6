//go:build kube

package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokegate/spokegate/test/kube/rig"
)

const aliceKey = "sk-spokegate-alice-0123456789abcdefghijklmnopqrstuvwxyzABCD"

// spokeValues are those of the smallest spoke, with a key that this test knows.
func spokeValues() string {
	sum := sha256.Sum256([]byte(aliceKey))
	return fmt.Sprintf(`
policy:
  inline: |
    endpoints: [{name: sim}]
    models: [{name: sim-small, endpoint: sim}]
    teams: [{name: research, models: ["*"]}]
    keys: [{id: alice, team: research, sha256: %s}]
`, hex.EncodeToString(sum[:]))
}

// TestSpoke runs the smallest spoke of the chart: two doors and two workers, as they are rendered.
func TestSpoke(t *testing.T) {
	ns := cluster.Namespace(t, "spoke")
	node.Tell(t, ns)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "spokegate-join"}, StringData: map[string]string{"token": strings.Repeat("join", 10)}}
	if _, err := cluster.Client.CoreV1().Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	text := cluster.Render(t, "spokegate-spoke", "spokegate", ns, cluster.Path("deploy/shapes/spoke-minimal.yaml"), spokeValues())
	cluster.MustApply(t, ns, "spoke-minimal.yaml", text)
	node.CreatePods(t, ns)
	doors := node.AwaitReady(t, ns, "app.kubernetes.io/component=door", 2)
	workers := node.AwaitReady(t, ns, "app.kubernetes.io/component=worker", 2)
	_ = doors
	_ = workers

	svc, err := cluster.Client.CoreV1().Services(ns).Get(t.Context(), "spokegate", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, func() error { return ask(t, svc.Spec.ClusterIP) })
}

func ask(t *testing.T, host string) error {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host+"/v1/chat/completions",
		strings.NewReader(`{"model":"sim-small","max_tokens":5,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		return err
	}
	req.Header.Set("authorization", "Bearer "+aliceKey)
	req.Header.Set("content-type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != 200 {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}
