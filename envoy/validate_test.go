package envoy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
)

// binary is the real Envoy: $SPOKEGATE_ENVOY, or where make puts it.
func binary(t testing.TB) string {
	path := os.Getenv("SPOKEGATE_ENVOY")
	if path == "" {
		path = filepath.Join("..", ".tools", "envoy", "envoy")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the real Envoy is needed: %v (make tools, or set SPOKEGATE_ENVOY)", err)
	}
	return path
}

func sampleView() *fleet.View {
	return &fleet.View{Version: 7, Workers: []fleet.Worker{
		{Name: "a", Endpoint: "large", Addr: "10.0.0.2:8000", State: fleet.Ready},
		{Name: "b", Endpoint: "large", Addr: "[2001:db8::1]:8000", State: fleet.Ready},
		{Name: "c", Endpoint: "large", Addr: "10.0.0.3:8000", State: fleet.Draining},
		{Name: "d", Endpoint: "small", Addr: "10.0.0.4:8000", State: fleet.Starting},
		{Name: "e", Endpoint: "gone", Addr: "10.0.0.5:8000", State: fleet.Ready},
	}}
}

// TestEnvoyAccepts has Envoy itself check every field, with and without what is optional.
func TestEnvoyAccepts(t *testing.T) {
	plain := Door{Listen: "127.0.0.1:10000", DoorSocket: "/tmp/spokegate-door.sock"}
	full := Door{Listen: "[::1]:10000", Admin: "127.0.0.1:9901", DoorSocket: "/tmp/d.sock", PickerSocket: "/tmp/p.sock", BodyLimit: 1 << 20,
		TrustedHops: 2, Collector: "collector.example:4317", TracePercent: 12.5}
	encrypted := plain
	encrypted.WorkerTLS, encrypted.Spoke = mtlstest.New(t).Issue(t, "door.test"), "north"
	for name, d := range map[string]Door{"pick rides on ext_authz": plain, "picker behind ext_proc": full, "TLS to workers": encrypted} {
		for kind, doc := range map[string]func() ([]byte, error){
			"static":    func() ([]byte, error) { return YAML(d.Static(sampleView(), []string{"large", "small", "large"})) },
			"bootstrap": func() ([]byte, error) { return YAML(d.Bootstrap()) },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				if err := d.Validate(); err != nil {
					t.Fatal(err)
				}
				text, err := doc()
				if err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(t.TempDir(), "envoy.yaml")
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
				argv := append(Command(binary(t), d, path), "--mode", "validate")
				if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s\n%s", err, out, text)
				}
			})
		}
	}
}
