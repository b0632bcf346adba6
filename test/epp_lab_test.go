package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// eppLab is the picker by itself behind the Envoy of docs/epp.md: two engines that a file lists, and one whose shim joins.
type eppLab struct {
	*up     // the picker
	t       *testing.T
	dir     string
	health  string
	envoyAt string
	engines []string // addresses
	events  int      // the port of their KV events, and the next one that of the past ones
	sims    []*up
}

// process starts a process that ends with the test.
func (l *eppLab) process(name string, args ...string) *up {
	l.t.Helper()
	p := &up{name: name, exited: make(chan struct{}), cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Dir = l.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.begin(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if l.t.Failed() {
			out := p.out.String()
			l.t.Logf("--- end of the output of %s\n%s", name, out[max(0, len(out)-3000):])
		}
	})
	return p
}

func (l *eppLab) write(name, text string) {
	l.t.Helper()
	path := filepath.Join(l.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		l.t.Fatal(err)
	}
}

func (l *eppLab) startSim(i int) {
	l.t.Helper()
	host, _, _ := net.SplitHostPort(l.engines[i])
	l.sims[i] = l.process(fmt.Sprint("sim ", i), lab.binary, "sim", "-listen", l.engines[i], "-model", "",
		"-kv-events", fmt.Sprintf("tcp://%s:%d", host, l.events), "-kv-replay", fmt.Sprintf("tcp://%s:%d", host, l.events+1))
}

func startEPP(t *testing.T) *eppLab {
	lab.needEnvoy(t)
	l := &eppLab{t: t, dir: t.TempDir(), health: freeAddr(), envoyAt: freeAddr(), sims: make([]*up, 3), events: freePort()}
	for freePort() != l.events+1 { // two in a row
		l.events = freePort()
	}
	for i := range l.sims {
		l.engines = append(l.engines, fmt.Sprintf("127.0.0.1%d:%d", i+1, freePort()))
		l.startSim(i)
	}
	l.write("token", strings.Repeat("join", 10))
	listen, ops, fleet := freeAddr(), freeAddr(), freeAddr()
	l.up = l.process("picker", lab.binary, "epp", "-endpoint", "pool", "-workers", "workers.yaml", "-listen", listen, "-health-listen", l.health,
		"-ops", ops, "-fleet-listen", fleet, "-join-token-file", "token", "-drain-delay", "300ms", "-drain", "2m")
	l.up.ops, l.up.listen = ops, l.envoyAt
	l.healthIs(healthv1.HealthCheckResponse_NOT_SERVING)
	l.list(0, 1)
	l.healthIs(healthv1.HealthCheckResponse_SERVING)
	l.process("shim", lab.binary, "worker", "-name", "joined", "-endpoint", "pool", "-attach", "http://"+l.engines[2], "-advertise", l.engines[2],
		"-doors", fleet, "-join-token-file", "token", "-dir", "shim")
	l.startEnvoy(listen)
	l.pickable(3)
	return l
}

// list writes these engines into the file.
func (l *eppLab) list(engines ...int) {
	l.t.Helper()
	text := "workers: [" // an empty list is one, too
	for _, i := range engines {
		text += fmt.Sprintf("{name: w%d, address: %q, engine: sim, kv_events: 'tcp://*:%d', kv_replay: 'tcp://*:%d'}, ", i, l.engines[i], l.events, l.events+1)
	}
	l.write("workers.yaml", text+"]\n")
}

// startEnvoy runs it with the configuration of the documentation, but for the addresses.
func (l *eppLab) startEnvoy(picker string) {
	l.t.Helper()
	page, err := os.ReadFile(filepath.Join(lab.root, "docs", "epp.md"))
	if err != nil {
		l.t.Fatal(err)
	}
	_, config, ok := strings.Cut(string(page), "```yaml\nadmin:")
	config, _, closed := strings.Cut(config, "```")
	if !ok || !closed {
		l.t.Fatal("docs/epp.md has no configuration of Envoy")
	}
	config = "admin:" + config
	admin := freeAddr()
	for documented, ours := range map[string]string{"127.0.0.1:9901": admin, "0.0.0.0:8080": l.envoyAt, "127.0.0.1:9002": picker,
		"10.0.0.1:8000": l.engines[0], "10.0.0.2:8000": l.engines[1], "10.0.0.3:8000": l.engines[2]} {
		from, to := socketAddress(documented), socketAddress(ours)
		if strings.Count(config, from) != 1 {
			l.t.Fatalf("docs/epp.md has %s %d times", from, strings.Count(config, from))
		}
		config = strings.Replace(config, from, to, 1)
	}
	l.write("envoy.yaml", config)
	l.process("envoy", lab.envoy, "-c", "envoy.yaml", "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning")
	eventually(l.t, startPatience, func() error {
		page, err := readPage(admin, "/ready")
		if err == nil && !strings.HasPrefix(page, "LIVE") {
			err = fmt.Errorf("Envoy says %s", page)
		}
		return err
	})
}

func socketAddress(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("{address: %s, port_value: %s}", host, port)
}

// healthIs waits until gRPC health says this of the services that tell whether it can be asked. It lives all the time.
func (l *eppLab) healthIs(want healthv1.HealthCheckResponse_ServingStatus) {
	t := l.t
	t.Helper()
	conn, err := grpc.NewClient(l.health, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := healthv1.NewHealthClient(conn)
	for service, want := range map[string]healthv1.HealthCheckResponse_ServingStatus{
		"liveness": healthv1.HealthCheckResponse_SERVING, "readiness": want, "": want, "envoy.service.ext_proc.v3.ExternalProcessor": want,
	} {
		eventually(t, factPatience, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			got, err := client.Check(ctx, &healthv1.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
			if err == nil && got.Status != want {
				err = fmt.Errorf("health of %q is %v, want %v", service, got.Status, want)
			}
			return err
		})
	}
}

// pickable waits until so many workers can be picked.
func (l *eppLab) pickable(n int) {
	l.t.Helper()
	l.opsSays(l.t, "/readyz", fmt.Sprintf("endpoint pool: %d workers can be picked", n))
}

// requests is how many each engine was asked.
func (l *eppLab) requests() (n []int) {
	l.t.Helper()
	for i, e := range l.engines {
		n = append(n, 0)
		page, err := readPage(e, "/sim/requests")
		if err != nil {
			continue // it is killed
		}
		var list []account
		if err := json.Unmarshal([]byte(page), &list); err != nil {
			l.t.Fatal(err)
		}
		n[i] = len(list)
	}
	return n
}

func talk(topic string, stream bool, tokens int) string {
	return fmt.Sprintf(`{"model":"any","stream":%v,"max_tokens":%d,"messages":[{"role":"user","content":%q}]}`, stream, tokens, strings.Repeat(topic+" ", 500))
}

// ask sends a request, and tells which engine served it.
func (l *eppLab) ask(topic string, more ...field) (engine int) {
	l.t.Helper()
	before := l.requests()
	l.ok(l.t, post("none", "/v1/chat/completions", talk(topic, false, 2), more...))
	after := l.requests()
	for i := range after {
		if after[i] > before[i] {
			return i
		}
	}
	l.t.Fatalf("no engine was asked: %v, %v", before, after)
	return -1
}
