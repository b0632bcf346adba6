//go:build kube

package deploy

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRendered: what is committed is what the charts make today.
func TestRendered(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("./render.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("render.sh: %v\n%s", err, out)
	}
	fresh, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	committed, err := filepath.Glob("yaml/*.yaml")
	if err != nil || len(committed) != len(fresh) {
		t.Errorf("%d shapes are committed, %d rendered, %v", len(committed), len(fresh), err)
	}
	for _, f := range fresh {
		want, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("yaml", filepath.Base(f)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("yaml/%s is not what the chart makes: make yaml (%v)", filepath.Base(f), err)
		}
	}
}

// helm renders a chart of ours by its name, or any by its folder.
func helm(t *testing.T, chart string, args ...string) (string, error) {
	t.Helper()
	if !strings.Contains(chart, "/") {
		chart = "helm/" + chart
	}
	all := append([]string{"template", "r", chart, "--namespace", "n", "--kube-version", "1.33.0"}, args...)
	out, err := exec.Command("../.tools/bin/helm", all...).CombinedOutput()
	return string(out), err
}

// refused are values that a chart does not take, and how it says so.
var refused = []struct{ shape, set, want string }{
	{"spoke-minimal", "door.replicas=3", "additional properties 'door' not allowed"},
	{"spoke-minimal", "doors.replica=3", "at '/doors': additional properties 'replica' not allowed"},
	{"spoke-minimal", "workers[0].engine.port=1", "at '/workers/0/engine': additional properties 'port' not allowed"},
	{"spoke-minimal", "doors.replicas=two", "at '/doors/replicas'"},
	{"spoke-minimal", "clients.plaintext=false", "clients: keys would cross the network unencrypted"},
	{"spoke-minimal", "clients.tls.secretName=x", "clients: plaintext and tls exclude each other"},
	{"spoke-minimal", "fleet.plaintext=false", "fleet: prompts and the join token would cross the network unencrypted"},
	{"spoke-minimal", "fleet.tls.issuerRef.name=x", "fleet: plaintext and tls exclude each other"},
	{"spoke-minimal", "fleet.plaintext=false,fleet.tls.issuerRef=null", "fleet: prompts and the join token would cross the network unencrypted"},
	{"spoke-minimal", "clients.plaintext=false,clients.tls.issuerRef=null", "clients: keys would cross the network unencrypted"},
	{"spoke-minimal", "policy.inline=", "policy: say where doors have it from"},
	{"spoke-minimal", "hub.address=h:1", "policy: say where doors have it from"},
	{"spoke-minimal", "workers[0].engine.kind=vllm", "workers[sim].engine.image: which image has vllm?"},
	{"spoke-minimal", "doors.enabled=false", "workers: a shim serves only what a door has admitted"},
	{"spoke-minimal", "fleet.doors.address=h:1", "fleet.doors is for doors that are not this chart's"},
	{"spoke-split", "workers[0].engine.args[0]=--host=0.0.0.0", "--host=0.0.0.0 would open the engine beside its shim"},
	{"spoke-split", "workers[0].name=long-prefill", "workers: there are two of the name long-prefill"},
	{"spoke-hub-mtls", "hub.tls.issuerRef.name=", "hub.tls: doors are known to the hub by certificates"},
	{"spoke-hub-mtls", "hub.tls.issuerRef=null", "hub.tls: doors are known to the hub by certificates"},
	{"spoke-hub-mtls", "kafka.tls=false", "kafka.tlsSecretName goes with kafka.tls=true"},
	{"spoke-hub-mtls", "kafka.sasl.user=", "kafka.sasl: a mechanism wants user and secretName"},
	{"spoke-pickers", "pickers[0].tls.selfSigned=false", "pickers[llama]: prompts would cross the network unencrypted"},
	{"spoke-pickers", "pickers[1].name=x", "pickers[x].pool.selector: which pods are in the pool?"},
	{"spoke-minimal", "pickers[0].name=p,pickers[0].pool.create=false", "pickers[p].pool.selector: no network policy lets the picker reach pods"},
	{"spoke-minimal", "workers[0].name=door", "workers[door].name: the doors' own objects have that name"},
	{"spoke-minimal", "pickers[0].name=sim,pickers[0].pool.selector.a=b", "pickers: there are two of the name sim"},
	{"spoke-minimal", "pickers[0].name=worker,pickers[0].pool.selector.a=b", "pickers[worker].name: objects of the chart have that name"},
	{"spoke-minimal", "pickers[0].name=usage-reconcile,pickers[0].pool.selector.a=b", "pickers[usage-reconcile].name: objects of the chart have that name"},
	{"spoke-minimal", "workers[0].bodyLimit=33554431", "workers[sim].bodyLimit: it would refuse what doors let through (doors.bodyLimit)"},
	{"spoke-minimal", "workers[0].engine=null", "at '/workers/0/engine': got null, want object"},
	{"spoke-pickers", "pickers[0].pool=null", "at '/pickers/0/pool': got null, want object"},
	{"spoke-minimal", "workers[0].engine.servedName=x", "workers[sim].engine.servedName: sim serves under the name of its model"},
	{"spoke-hub-mtls", "kafka.brokers=a:9093\\,b:9094", "kafka.ports: the network policy does not let b:9094 through"},
	{"hub-postgres", "database.postgres.url=postgres://hub@db:6432/hub", "database.postgres.port: the url has 6432, and the network policy lets 5432 through"},
	{"spoke-hub-mtls", "kafka.brokers=", "kafka: tls and sasl towards whom?"},
	{"spoke-minimal", "reconcile.enabled=true", "reconcile: it reads Kafka: give kafka.brokers"},
	{"spoke-hub-mtls", "reconcile.range=2d", "at '/reconcile/range'"},
	{"spoke-hub-mtls", "reconcile.schedule=daily", "at '/reconcile/schedule'"},
	{"spoke-hub-mtls", "redis.secretName=", "redis.to without redis.secretName"},
	{"spoke-hub-mtls", "doors.gpus=H100:16", "at '/doors/gpus'"},
	{"spoke-hub-mtls", "doors.gpus=H100=8/9", "doors.gpus: H100=8/9: more are free than there are"},
	{"spoke-hub-mtls", "doors.labels.a=b\\,c", "at '/doors/labels/a'"},
	{"spoke-minimal", "doors.labels.a=b", "hub.maxAge, doors.gpus and doors.labels are between doors and a hub: give hub.address"},
	{"spoke-hub-mtls", "redis.timeout=5s", "at '/redis/timeout'"},
	{"spoke-hub-mtls", "hub.maxAge=30s", "at '/hub/maxAge'"},
	{"spoke-hub-mtls", "doors.bodyLimit=1000", "at '/doors/bodyLimit'"},
	{"hub-sqlite", "replicas=null", "replicas: SQLite is one hub's"},
	{"hub-sqlite", "replicas=2", "replicas: SQLite is one hub's"},
	{"hub-sqlite", "push.tls.issuerRef.name=", "push.tls: doors know the hub by certificates"},
	{"hub-sqlite", "api.tls.issuerRef.name=", "api: admin tokens would cross the network unencrypted"},
	{"hub-sqlite", "push.tls.issuerRef=null", "push.tls: doors know the hub by certificates"},
	{"hub-sqlite", "api.tls.issuerRef=null", "api: admin tokens would cross the network unencrypted"},
	{"hub-postgres", "database.postgres.url=postgres://hub:secret@db/hub", "database.postgres.url: keep the password out of it"},
}

// TestRefused: what is not known, and what is not safe unless it is named, is refused with the value's name.
func TestRefused(t *testing.T) {
	for _, c := range refused {
		chart := "spokegate-spoke"
		if strings.HasPrefix(c.shape, "hub-") {
			chart = "spokegate-hub"
		}
		out, err := helm(t, chart, "--values", "shapes/"+c.shape+".yaml", "--set", c.set)
		if err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s with %s: want %q, have %v:\n%.300s", c.shape, c.set, c.want, err, out)
		}
	}
}

// TestWithoutPolicies: they can be left out, and then all of them are.
func TestWithoutPolicies(t *testing.T) {
	out, err := helm(t, "spokegate-spoke", "--values", "shapes/spoke-minimal.yaml", "--set", "networkPolicy.enabled=false,podDisruptionBudget.enabled=false")
	if err != nil || strings.Contains(out, "kind: NetworkPolicy") || strings.Contains(out, "kind: PodDisruptionBudget") || !strings.Contains(out, "kind: StatefulSet") {
		t.Errorf("%v\n%.500s", err, out)
	}
}

// TestReproducible builds the released binary from two copies of the sources, in folders of other names and lengths: the same bytes.
// Its bill of materials is what Go itself reads from it.
func TestReproducible(t *testing.T) {
	one, other := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "a-much-longer/folder")
	copied := exec.Command("sh", "-c", `mkdir -p "$0" "$1" && cd .. && git ls-files -z | xargs -0 cp --parents --target-directory "$0" && cp -r "$0/." "$1"`, one, other)
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var sums [2][32]byte
	var binary string
	for i, src := range []string{one, other} {
		binary = filepath.Join(t.TempDir(), "spokegate")
		build := exec.Command(filepath.Join(src, "deploy/build.sh"), binary, "v1.2.3")
		build.Env = append(os.Environ(), "GOFLAGS=-tags=some,of,the,machine")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		if sums[i] = sha256.Sum256(text); bytes.Contains(text, []byte(src)) {
			t.Error("the binary tells where it was built")
		}
	}
	if sums[0] != sums[1] {
		t.Error("two builds of the same sources differ")
	}
	materials(t, binary)
}

func materials(t *testing.T, binary string) {
	t.Helper()
	text, err := exec.Command(binary, "version", "-sbom").Output()
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		Metadata   struct{ Component struct{ Version string } }
		Components []struct {
			Name, Version string
			Hashes        []struct{ Content string }
		}
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Component.Version != "v1.2.3" {
		t.Errorf("version %q", bom.Metadata.Component.Version)
	}
	listed := map[string]bool{}
	for _, c := range bom.Components {
		listed[c.Name+" "+c.Version] = len(c.Hashes) == 1 && len(c.Hashes[0].Content) == 64
	}
	out, err := exec.Command("go", "version", "-m", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := 0
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "dep" {
			modules++
			if !listed[f[1]+" "+f[2]] {
				t.Errorf("the bill of materials lacks %s %s, or its hash", f[1], f[2])
			}
		}
	}
	if modules < 20 || len(bom.Components) != modules+1 {
		t.Errorf("%d components, of %d modules and Go's own library", len(bom.Components), modules)
	}
}
