package epp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"text/template"
	"time"
)

// gateway is one Envoy with a listener a case.
type gateway struct {
	listeners map[string]string // address by name
	relay     *relay            // what the listeners "open" and "closed" take for their picker
	cmd       *exec.Cmd
	exited    chan error
	log       string
	dir       string
}

// A listener of the gateway, and a pool behind it.
type (
	listener struct {
		Name     string
		Port     int
		FailOpen bool
		Mode     string
		Retries  int
		Split    []split
	}
	split struct {
		Cluster, Picker string
		Weight          int
	}
	cluster struct {
		Name              string
		HTTP2             bool
		Pool              bool // of workers
		AnyHost, ByHeader bool // of a pool: any is taken where none is picked; the pick is read from the header
		Checked           bool // its health is asked for
		Hosts             []hostPort
	}
	hostPort struct {
		Addr string
		Port int
	}
)

// Weights of the two pools behind the listener "weights".
const weightFirst, weightSecond = 70, 30

func startGateway(dir string, ws *workers, ps *pickers) (*gateway, error) {
	binary := os.Getenv("SPOKEGATE_ENVOY")
	if binary == "" {
		binary, _ = filepath.Abs(filepath.Join("..", "..", ".tools", "envoy", "envoy"))
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, errors.New("Envoy is missing: run `make envoy`, or name its binary in SPOKEGATE_ENVOY")
	}
	r, err := newRelay(ps.main)
	if err != nil {
		return nil, err
	}
	g := &gateway{listeners: map[string]string{}, relay: r, exited: make(chan error, 1), log: filepath.Join(dir, "envoy.log"), dir: dir}
	const full = "FULL_DUPLEX_STREAMED"
	plain := func(pool string) []split { return []split{{pool, "picker", 1}} }
	listeners := []listener{
		{Name: "http", Mode: full, Split: plain("http")},
		{Name: "by-header", Mode: full, Split: plain("by-header")},
		{Name: "h2c", Mode: full, Split: plain("h2c")},
		{Name: "retrying", Mode: full, Split: plain("http"), Retries: 3},
		{Name: "parts", Mode: full, Split: []split{{"http", "picker-parts", 1}}, Retries: 3},
		{Name: "buffered", Mode: "BUFFERED", Split: plain("http")},
		{Name: "streamed", Mode: "STREAMED", Split: plain("http")},
		{Name: "open", Mode: full, Split: []split{{"any", "relay", 1}}, FailOpen: true},
		{Name: "closed", Mode: full, Split: []split{{"any", "relay", 1}}},
		{Name: "weights", Mode: full, Split: []split{{"first", "picker-first", weightFirst}, {"second", "picker-second", weightSecond}}},
	}
	clusters := []cluster{
		{Name: "http", Pool: true, Hosts: hosts(ws.all()...)},
		{Name: "by-header", Pool: true, ByHeader: true, Hosts: hosts(ws.all()...)},
		{Name: "h2c", Pool: true, HTTP2: true, Hosts: hosts(ws.all()...)},
		{Name: "any", Pool: true, AnyHost: true, Hosts: hosts(ws.all()...)},
		{Name: "first", Pool: true, Hosts: hosts(ws.one, ws.two)},
		{Name: "second", Pool: true, Hosts: hosts(ws.three, ws.six)},
		{Name: "picker", HTTP2: true, Hosts: []hostPort{at(ps.main)}},
		{Name: "relay", HTTP2: true, Checked: true, Hosts: []hostPort{at(r.addr)}},
	}
	for name, addr := range map[string]string{"picker-first": ps.first, "picker-second": ps.second, "picker-parts": ps.parts} {
		if addr == "" {
			addr = ps.main // for Envoy's sake; the test is skipped
		}
		clusters = append(clusters, cluster{Name: name, HTTP2: true, Hosts: []hostPort{at(addr)}})
	}
	ports, err := freePorts(len(listeners)+1, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	for i := range listeners {
		listeners[i].Port = ports[i]
		g.listeners[listeners[i].Name] = "127.0.0.1:" + strconv.Itoa(ports[i])
	}
	admin := ports[len(listeners)]
	if err := g.run(binary, map[string]any{"Admin": admin, "Listeners": listeners, "Clusters": clusters}); err != nil {
		return nil, err
	}
	return g, g.await("http://127.0.0.1:" + strconv.Itoa(admin) + "/ready")
}

func hosts(ws ...*worker) (out []hostPort) {
	for _, w := range ws {
		out = append(out, at(w.addr))
	}
	return out
}

func at(addr string) hostPort {
	host, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return hostPort{host, n}
}

func (g *gateway) run(binary string, values any) error {
	t, err := template.ParseFiles("testdata/envoy.yaml.tmpl")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, values); err != nil {
		return err
	}
	path := filepath.Join(g.dir, "envoy.yaml")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		return err
	}
	g.cmd = exec.Command(binary, "-c", path, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning", "--log-path", g.log)
	return start(g.cmd, g.exited)
}

// start starts a process that ends with us. The thread that starts it stays, because its end would be the child's.
func start(cmd *exec.Cmd, exited chan<- error) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			exited <- cmd.Wait()
		}
	}()
	return <-started
}

func (g *gateway) await(url string) error {
	for limit := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-g.exited:
			log, _ := os.ReadFile(g.log)
			return fmt.Errorf("Envoy ended: %w\n%s", err, log)
		default:
		}
		if time.Now().After(limit) {
			return errors.New("Envoy is not ready in time")
		}
	}
}

func (g *gateway) stop() error {
	g.relay.cut()
	_ = g.cmd.Process.Kill()
	<-g.exited
	log, err := os.ReadFile(g.log)
	for _, bad := range []string{"Assert failure", "Caught "} {
		if bytes.Contains(log, []byte(bad)) {
			err = errors.Join(err, fmt.Errorf("Envoy says:\n%s", log))
		}
	}
	return err
}
