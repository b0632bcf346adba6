//go:build kube

package test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/usage"
)

const (
	// insideMark tells a test's process that it is in a network of its own.
	insideMark = "SPOKEGATE_TEST_INSIDE"
	// gatewayEnvoy is what Envoy Gateway takes our Envoy for: it looks for it in a folder of that name.
	gatewayEnvoy    = "1.40.0"
	gatewayPatience = 3 * time.Minute
)

// TestEnvoyGateway runs the cases of the door's own Envoy against Envoy Gateway, set up as `spokegate envoy print` tells it.
// Envoy Gateway listens on all addresses, so the test runs itself again in a network of its own.
func TestEnvoyGateway(t *testing.T) {
	lab.needEnvoy(t)
	if os.Getenv(insideMark) == "" {
		inside(t)
		return
	}
	for name, test := range map[string]func(*testing.T){
		"before a shim":    gatewayShim,
		"before a tap":     gatewayTap,
		"before engines":   gatewaySims,
		"with two workers": gatewayNextWorker,
		"with our picker":  gatewayPicker,
		"long answers":     gatewayLong,
	} {
		t.Run(name, test)
	}
}

// inside runs the test in a network namespace with nothing but loopback.
func inside(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=" + flag.Lookup("test.run").Value.String(), "-test.timeout=20m", "-test.parallel=16"} // the cases wait, most of the time
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), insideMark+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Run(); err != nil {
		t.Fatalf("in a network of its own (which needs root): %v", err)
	}
}

// loopbackUp switches loopback on.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// startForeign starts a door that stands beside an Envoy of somebody else's. Workers and that Envoy come later.
func startForeign(t *testing.T, policy *policyText) *up {
	t.Helper()
	if err := loopbackUp(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "sg")
	if err != nil {
		t.Fatal(err)
	}
	u := &up{name: "gateway", dir: dir, listen: freeAddr(), ops: freeAddr(), policy: policy, policyPath: filepath.Join(dir, "p.yaml"), foreign: true, exited: make(chan struct{})}
	_, hash := identity.NewKey()
	for _, folder := range []string{"run", "log", "objects"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{u.policyPath: policy.yaml(), filepath.Join(dir, "run", "join-token"): hash.String()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u.cmd = command(append([]string{"door", "-gateway", "envoy-gateway"}, u.doorFlags()...)...)
	u.cmd.Stdout, u.cmd.Stderr = &u.out, &u.out
	if err := u.begin(); err != nil {
		t.Fatal(err)
	}
	u.ledger = newLedger(filepath.Join(dir, "spool"))
	t.Cleanup(func() {
		if err := u.stop(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, startPatience, func() error {
		_, err := os.Stat(filepath.Join(dir, "run", "ops"))
		return err
	})
	return u
}

func (u *up) doorFlags() []string {
	return []string{"-dir", u.dir, "-policy", u.policyPath, "-join-token-file", filepath.Join(u.dir, "run", "join-token"), "-listen", u.listen, "-ops", u.ops, "-admin", ""}
}

// printed is what `envoy print` says for workers at these addresses, by endpoint.
func (u *up) printed(t *testing.T, places map[string][]string) []byte {
	t.Helper()
	args := append([]string{"envoy", "print", "-for", "envoy-gateway", "-host-envoy", gatewayEnvoy}, u.doorFlags()...)
	for endpoint, at := range places {
		args = append(args, "-workers", endpoint+"="+strings.Join(at, ","))
	}
	objects, err := command(args...).Output()
	if err != nil {
		t.Fatalf("envoy print: %v", err)
	}
	return objects
}

// startGateway runs Envoy Gateway with our Envoy and these objects.
func (u *up) startGateway(t *testing.T, objects []byte) {
	t.Helper()
	program := filepath.Join(lab.root, ".tools", "bin", "envoy-gateway")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("Envoy Gateway is missing: run test/setup/envoy-gateway.sh: %v", err)
	}
	home := filepath.Join(u.dir, "gateway")
	bin := filepath.Join(home, "data", "envoy-versions", gatewayEnvoy, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(lab.envoy, filepath.Join(bin, "envoy")); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
provider:
  type: Custom
  custom:
    resource: {type: File, file: {paths: [%[1]s/objects]}}
    infrastructure: {type: Host, host: {configHome: %[2]s/config, dataHome: %[2]s/data, stateHome: %[2]s/state, runtimeDir: %[2]s/run}}
logging: {level: {default: info}}
extensionApis: {enableBackend: true}
`, u.dir, home)
	for path, data := range map[string][]byte{filepath.Join(u.dir, "objects", "objects.yaml"): objects, filepath.Join(home, "config.yaml"): []byte(config)} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(program, "certgen", "--local", "--config-home", filepath.Join(home, "config")).CombinedOutput(); err != nil {
		t.Fatalf("certgen: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(u.dir, "log", "gateway.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "server", "--config-path", filepath.Join(home, "config.yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	u.alongside(t, cmd)
	u.closer = append(u.closer, func() { _ = log.Close() })
}

// alongside runs a process for as long as the installation runs.
func (u *up) alongside(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	p := &up{cmd: cmd, exited: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	}
	if err := p.begin(); err != nil {
		t.Fatal(err)
	}
	u.closer = append(u.closer, func() {
		family := descendants(cmd.Process.Pid)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(stopPatience):
			_ = cmd.Process.Kill()
			<-p.exited
		}
		for _, c := range family {
			c.kill()
		}
	})
}

// worker runs a shim at an address.
func (u *up) gatewayWorker(t *testing.T, name, endpoint, at string, engine ...string) {
	t.Helper()
	args := []string{"worker", "-name", name, "-endpoint", endpoint, "-dir", u.dir, "-listen", at,
		"-doors", "unix:" + filepath.Join(u.dir, "run", "fleet.sock"), "-join-token-file", filepath.Join(u.dir, "run", "join-token")}
	cmd := command(append(args, engine...)...)
	log, err := os.Create(filepath.Join(u.dir, "log", name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	u.alongside(t, cmd)
}

// awaitGateway waits until a request passes.
func (u *up) awaitGateway(t *testing.T, model string) {
	t.Helper()
	eventually(t, gatewayPatience, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), callPatience)
		defer cancel()
		r, err := sendHTTP1(ctx, u.listen, post(u.key("main"), "/v1/chat/completions", `{"model":"`+model+`","max_tokens":1,"messages":[]}`, field{caseHeader, casePrefix + "first"}))
		if err == nil && r.status != http.StatusOK {
			err = errors.New(r.String())
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, u.report())
		}
		return err
	})
}

func gatewayShim(t *testing.T) {
	at := freeAddr()
	u := startForeign(t, casesPolicy("[{name: pool}]", "pool"))
	u.engine = startEngine("cheap", "dear", "base/lora-1")
	u.gatewayWorker(t, "w1", "pool", at, "-attach", u.engine.server.URL)
	u.startGateway(t, u.printed(t, map[string][]string{"pool": {at}}))
	u.awaitGateway(t, "cheap")
	cases := append(loadCases[requestCase](t, "requests.yaml"), loadCases[requestCase](t, "more-requests.yaml")...)
	t.Run("requests", func(t *testing.T) {
		for _, p := range protocols {
			t.Run(p.name, func(t *testing.T) { runRequests(t, u, p, cases) })
		}
	})
	t.Run("usage", func(t *testing.T) {
		for _, c := range append(loadCases[usageCase](t, "usage.yaml"), loadCases[usageCase](t, "more-usage.yaml")...) {
			t.Run(c.Name, func(t *testing.T) { t.Parallel(); c.run(t, u) })
		}
	})
	t.Run("alias", func(t *testing.T) { aliases(t, u) })
	t.Run("nothing else reached the engine", func(t *testing.T) { u.engine.silent(t) })
}

func gatewayTap(t *testing.T) {
	u := startForeign(t, casesPolicy("[{name: tap}]", "tap"))
	var err error
	if u.tap, err = joinTap(u, "tap", "tap", nil); err != nil {
		t.Fatal(err)
	}
	u.startGateway(t, u.printed(t, map[string][]string{"tap": {u.tap.addr}}))
	u.awaitGateway(t, "cheap")
	cases := append(loadCases[requestCase](t, "requests.yaml"), loadCases[requestCase](t, "more-requests.yaml")...)
	t.Run("requests", func(t *testing.T) {
		for _, p := range protocols {
			t.Run(p.name, func(t *testing.T) { runRequests(t, u, p, cases) })
		}
	})
	t.Run("nothing else reached the worker", func(t *testing.T) { u.tap.silent(t) })
}

func gatewaySims(t *testing.T) {
	u := startForeign(t, simPolicy())
	var at []string
	for i := range 3 {
		at = append(at, freeAddr())
		u.gatewayWorker(t, fmt.Sprint("w", i), "sim", at[i], "-rates", ratesFile(t))
	}
	u.startGateway(t, u.printed(t, map[string][]string{"sim": at}))
	u.awaitGateway(t, "sim-small")
	t.Run("rate limit", func(t *testing.T) { rateLimit(t, u) })
	t.Run("side doors", func(t *testing.T) { closedToStrangers(t, u, at[0]) })
	t.Run("clients that leave", func(t *testing.T) {
		finished := cutTraffic(t, u, 7)
		u.idle(t, factPatience)
		cutBalance(t, u, finished)
	})
}

// gatewayNextWorker: one worker refuses, and the next of the list serves, without a word to the client.
func gatewayNextWorker(t *testing.T) {
	u := startForeign(t, casesPolicy("[{name: tap}]", "tap"))
	bad, err := joinTap(u, "bad", "tap", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Spokegate-Refused", "draining")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	if err != nil {
		t.Fatal(err)
	}
	good, err := joinTap(u, "good", "tap", nil)
	if err != nil {
		t.Fatal(err)
	}
	u.startGateway(t, u.printed(t, map[string][]string{"tap": {bad.addr, good.addr}}))
	u.awaitGateway(t, "cheap")
	retried := 0
	for i := range 6 { // the picker begins with the one or the other
		label := fmt.Sprintf("case/next-%d", i)
		r := u.ok(t, post(u.key("main"), "/v1/chat/completions",
			fmt.Sprintf(`{"model":"cheap","messages":[{"role":"user","content":"%d %s"}]}`, i, strings.Repeat(label, 50)), field{caseHeader, label}))
		rec := u.ledger.usage(t, r.admission())
		attempts := 1 + len(bad.got(label))
		retried += attempts - 1
		if rec.GetOutcome() != usage.OutcomeComplete || rec.GetWorker() != good.addr || int(rec.GetAttempt()) != attempts || rec.GetCompletionTokens() != 3 {
			t.Errorf("after %d attempts, served by %s, the usage record is %s", attempts, good.addr, usage.AppendJSON(nil, rec))
		}
		once(t, "good worker", good.got(label))
	}
	if retried == 0 {
		t.Error("the failing worker was never asked: the test proves nothing")
	}
}
