package envoy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/spokegate/spokegate/fleet"
)

func TestMain(m *testing.M) {
	CheckHeaders = append(CheckHeaders, steering...)
	goleak.VerifyTestMain(m)
}

// rig is a door with stub services, the real Envoy, and stub workers.
type rig struct {
	t         *testing.T
	dir       string
	door      Door
	fleet     *fleet.Fleet
	server    *Server
	registry  *prometheus.Registry
	services  *services
	picker    *stubPicker
	grpc      *grpc.Server
	admission *http.Server
	url       string // where Envoy listens
	addr      string
	workers   map[string]*worker
	client    *http.Client
	envoy     *exec.Cmd
	log       *output
}

// output is Envoy's stderr.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// startRig starts all of it and waits until Envoy listens.
func startRig(t *testing.T, withPicker bool, change func(*Door)) *rig {
	t.Helper()
	r := newRig(t, withPicker, change)
	r.serveDoor()
	r.servePicker()
	for _, name := range []string{"a", "b", "c"} {
		r.addWorker(name, "large")
	}
	r.server.SetEndpoints([]string{"large", "empty"})
	r.startEnvoy()
	return r
}

func newRig(t *testing.T, withPicker bool, change func(*Door)) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "spokegate") // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, dir: dir, fleet: fleet.New(), registry: prometheus.NewRegistry(), services: newServices(),
		picker: &stubPicker{asked: newNotes[string]()}, workers: map[string]*worker{}, log: &output{},
		door:   Door{Listen: "127.0.0.1:0", Admin: filepath.Join(dir, "a"), DoorSocket: filepath.Join(dir, "d"), Concurrency: 1},
		client: &http.Client{Timeout: patience, Transport: &http.Transport{DisableCompression: true}},
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Cleanup(r.client.CloseIdleConnections)
	if withPicker {
		r.door.PickerSocket = filepath.Join(dir, "p")
	}
	if change != nil {
		change(&r.door)
	}
	if err := r.door.Validate(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) serveDoor() {
	log := slog.New(slog.NewTextHandler(r.log, nil))
	r.server = NewServer(r.door, r.fleet, log, r.registerer())
	r.grpc = grpc.NewServer(r.door.ServerOptions()...)
	r.services.register(r.grpc)
	r.server.Register(r.grpc)
	r.serve(r.grpc, r.door.DoorSocket)
	r.serveAdmission()
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- r.server.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	})
}

func (r *rig) registerer() prometheus.Registerer {
	if r.registry == nil {
		return nil
	}
	return r.registry
}

func (r *rig) servePicker() {
	if r.door.PickerSocket == "" {
		return
	}
	g := grpc.NewServer(r.door.ServerOptions()...)
	procv3.RegisterExternalProcessorServer(g, r.picker)
	r.serve(g, r.door.PickerSocket)
}

func (r *rig) serve(g *grpc.Server, socket string) {
	lis, err := net.Listen("unix", socket)
	if err != nil {
		r.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(lis) }()
	r.t.Cleanup(func() { g.Stop(); <-served })
}

func (r *rig) startEnvoy() {
	r.t.Helper()
	r.launch()
	r.addr = r.listening()
	r.url = "http://" + r.addr
}

// launch starts Envoy and does not wait for it.
func (r *rig) launch() {
	r.t.Helper()
	text, err := YAML(r.door.Bootstrap())
	if err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.dir, "envoy.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		r.t.Fatal(err)
	}
	argv := Command(binary(r.t), r.door, path)
	r.envoy = exec.Command(argv[0], argv[1:]...)
	r.envoy.Stderr, r.envoy.Stdout = r.log, r.log
	r.envoy.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.envoy.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		r.stopEnvoy()
		if r.t.Failed() {
			r.t.Logf("envoy and door said:\n%s", r.log)
		}
	})
}

func (r *rig) stopEnvoy() {
	if r.envoy == nil {
		return
	}
	r.envoy.Process.Kill()
	r.envoy.Wait()
	r.envoy = nil
}

// eventually waits for a fact that nobody announces.
func (r *rig) eventually(what string, fact func() bool) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !fact() {
		select {
		case <-tick.C:
		case <-limit:
			r.t.Fatalf("never %s", what)
		}
	}
}

// admin reads from Envoy's admin; empty when it cannot.
func (r *rig) admin(path string) string {
	c := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", r.door.Admin)
		}}}
	res, err := c.Get("http://admin" + path)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return string(b)
}

// listening waits for the door's listener and returns its address.
func (r *rig) listening() (addr string) {
	r.t.Helper()
	r.eventually("a listener", func() bool {
		var l struct {
			Listeners []struct {
				LocalAddress struct {
					SocketAddress struct {
						Address string
						Port    int `json:"port_value"`
					} `json:"socket_address"`
				} `json:"local_address"`
			} `json:"listener_statuses"`
		}
		json.Unmarshal([]byte(r.admin("/listeners?format=json")), &l)
		if len(l.Listeners) == 0 || !strings.HasPrefix(r.admin("/ready"), "LIVE") {
			return false
		}
		a := l.Listeners[0].LocalAddress.SocketAddress
		addr = fmt.Sprintf("%s:%d", a.Address, a.Port)
		return a.Port != 0
	})
	return addr
}
