//go:build kube

package roll

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const pickerCount = 2

// TestRollPickers replaces each of two pickers behind a plain Envoy while clients go on.
func TestRollPickers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("it wants root, for mounts of its own")
	}
	s := newSpoke(t)
	workers := "workers:\n"
	for i := range 3 { // as many as the page's Envoy has
		s.start(fmt.Sprintf("engine-%d", i), s.binary, "sim", "-listen", engineAddress(i), "-model", "", "-rates", filepath.Join(s.dir, "rates.json"))
		workers += fmt.Sprintf("- {name: e%d, address: %q, engine: sim}\n", i, engineAddress(i))
	}
	if err := os.WriteFile(filepath.Join(s.dir, "workers.yaml"), []byte(workers), 0o600); err != nil {
		t.Fatal(err)
	}
	pickers := make([]*proc, pickerCount)
	for i := range pickers {
		pickers[i] = s.startPicker(i)
	}
	s.startPlainEnvoy()
	s.eventually("both pickers are asked", bothAsked)
	l := s.load("127.78.2.1:18080")
	for i, old := range pickers {
		old.end(t)
		s.startPicker(i)
		s.eventually("both pickers are asked", bothAsked)
		s.comesTo(something, pickerOps(i), "spokegate_picker_worker_load")
	}
	l.end()
	if bad := l.failed(); len(bad) > 0 {
		t.Errorf("%d failed:\n%s", len(bad), strings.Join(bad[:min(len(bad), 10)], "\n"))
	}
	t.Logf("%d answers, %v", l.good, l.through)
	if l.through["HTTP/1.1"] == 0 || l.through["HTTP/2.0"] == 0 {
		t.Errorf("answers: %v", l.through)
	}
	for i := range pickers {
		s.comesTo(nothing, pickerOps(i), "spokegate_picker_worker_load")
	}
}

func engineAddress(i int) string { return fmt.Sprintf("127.78.0.%d:18000", i+1) }
func pickerOps(i int) string     { return fmt.Sprintf("127.78.1.%d:18001", i+1) }

// startPicker starts one. It goes on being asked for long after its health has said no, so that no Envoy is too slow to see it.
func (s *spoke) startPicker(i int) *proc {
	s.t.Helper()
	return s.start(fmt.Sprintf("picker-%d", i), s.binary, "epp", "-endpoint", "pool", "-workers", filepath.Join(s.dir, "workers.yaml"),
		"-listen", fmt.Sprintf("127.78.1.%d:19002", i+1), "-health-listen", "", "-ops", pickerOps(i), "-drain-delay", "10s", "-drain", "1m")
}

// startPlainEnvoy runs the Envoy of docs/epp.md, before two pickers that it asks for their health.
func (s *spoke) startPlainEnvoy() {
	s.t.Helper()
	page, err := os.ReadFile("../../docs/epp.md")
	if err != nil {
		s.t.Fatal(err)
	}
	_, config, ok := strings.Cut(string(page), "```yaml\nadmin:")
	config, _, closed := strings.Cut(config, "```")
	if !ok || !closed {
		s.t.Fatal("docs/epp.md has no configuration of Envoy")
	}
	config = "admin:" + config
	const one = "        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 9002}}}\n"
	for from, to := range map[string]string{
		"address: 127.0.0.1, port_value: 9901": "address: 127.78.2.1, port_value: 18901",
		"address: 0.0.0.0, port_value: 8080":   "address: 127.78.2.1, port_value: 18080",
		"address: 10.0.0.1, port_value: 8000":  "address: 127.78.0.1, port_value: 18000",
		"address: 10.0.0.2, port_value: 8000":  "address: 127.78.0.2, port_value: 18000",
		"address: 10.0.0.3, port_value: 8000":  "address: 127.78.0.3, port_value: 18000",
		one:                                    strings.ReplaceAll(one, "127.0.0.1, port_value: 9002", "127.78.1.1, port_value: 19002") + strings.ReplaceAll(one, "127.0.0.1, port_value: 9002", "127.78.1.2, port_value: 19002"),
		"  - name: picker\n    type: STATIC\n": `  - name: picker
    type: STATIC
    common_lb_config: {healthy_panic_threshold: {value: 0}}
    health_checks:
    - {timeout: 5s, interval: 0.2s, no_traffic_interval: 0.2s, unhealthy_threshold: 1, healthy_threshold: 1, grpc_health_check: {service_name: readiness}}
`,
	} {
		if strings.Count(config, from) != 1 {
			s.t.Fatalf("docs/epp.md has %q %d times", from, strings.Count(config, from))
		}
		config = strings.Replace(config, from, to, 1)
	}
	path := filepath.Join(s.dir, "envoy.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.start("envoy", s.envoy, "-c", path, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning")
}

func bothAsked() error {
	text, err := page("http://127.78.2.1:18901/stats?filter=^cluster.picker.membership_healthy$")
	if want := fmt.Sprintf("cluster.picker.membership_healthy: %d", pickerCount); err == nil && strings.TrimSpace(text) != want {
		err = fmt.Errorf("%s", text)
	}
	return err
}
