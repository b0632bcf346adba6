//go:build kube

package test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// gatewayPicker runs `spokegate epp` behind Envoy Gateway as docs/gateways.md has it, before engines without shims.
func gatewayPicker(t *testing.T) {
	u := startForeign(t, casesPolicy("[{name: none}]", "none")) // its door has nothing to do here
	engines, picker := []*engine{startEngine("cheap"), startEngine("cheap")}, freeAddr()
	var list, ends strings.Builder
	for i, e := range engines {
		at := e.server.Listener.Addr().String()
		host, port, _ := net.SplitHostPort(at)
		fmt.Fprintf(&list, "- {name: e%d, address: %q}\n", i, at)
		fmt.Fprintf(&ends, "{ip: {address: %s, port: %s}},", host, port)
	}
	workers := filepath.Join(u.dir, "workers.yaml")
	if err := os.WriteFile(workers, []byte("workers:\n"+list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	u.alongside(t, command("epp", "-endpoint", "llama", "-workers", workers, "-listen", picker, "-health-listen", "", "-ops", freeAddr()))
	u.startGateway(t, u.pickerObjects(t, picker, ends.String()))
	u.awaitGateway(t, "cheap")

	other := field{"x-gateway-destination-endpoint", "127.0.0.1:1"}
	served := func(label string) (by []int) {
		for i, e := range engines {
			for range e.got(label) {
				by = append(by, i)
			}
		}
		return by
	}
	used := map[int]bool{}
	for i := range 6 {
		label := fmt.Sprintf("case/prompt-%d", i)
		for range 3 { // the same prompt goes where it has been
			u.ok(t, post(u.key("main"), "/v1/chat/completions",
				fmt.Sprintf(`{"model":"cheap","messages":[{"role":"user","content":"%d %s"}]}`, i, strings.Repeat(label, 400)), field{caseHeader, label}, other))
		}
		by := served(label)
		if len(by) != 3 || by[0] != by[2] {
			t.Errorf("prompt %d was served by engines %v", i, by)
		}
		used[by[0]] = true
	}
	if len(used) != 2 {
		t.Errorf("only engines %v were used", used)
	}
}

// pickerObjects are those of the page, with addresses in the place of Services.
func (u *up) pickerObjects(t *testing.T, picker, engines string) []byte {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(lab.root, "docs", "gateways.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(page), "```yaml\n")
	block, _, ok2 := strings.Cut(block, "```")
	if !ok || !ok2 || !strings.Contains(block, "FullDuplexStreamed") {
		t.Fatalf("the page has no such objects: %s", block)
	}
	for service, backend := range map[string]string{
		"{name: llama-picker, port: 9002}": "{group: gateway.envoyproxy.io, kind: Backend, name: llama-picker}",
		"{name: llama, port: 8000}":        "{group: gateway.envoyproxy.io, kind: Backend, name: llama}",
	} {
		if !strings.Contains(block, service) {
			t.Fatalf("the page does not name %s", service)
		}
		block = strings.ReplaceAll(block, service, backend)
	}
	_, port, _ := net.SplitHostPort(u.listen)
	host, at, _ := net.SplitHostPort(picker)
	return []byte(block + fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: edge}
spec:
  controllerName: gateway.envoyproxy.io/gatewayclass-controller
  parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: edge, namespace: llm}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: edge, namespace: llm}
spec: {provider: {type: Host, host: {envoyVersion: %q}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: llm}
spec: {gatewayClassName: edge, listeners: [{name: http, protocol: HTTP, port: %s}]}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: llama, namespace: llm}
spec: {endpoints: [%s]}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: llama-picker, namespace: llm}
spec: {endpoints: [{ip: {address: %s, port: %s}}]}
`, gatewayEnvoy, port, strings.TrimSuffix(engines, ","), host, at))
}
