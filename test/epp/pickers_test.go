package epp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// Environment that names pickers other than ours (docs/epp.md).
const (
	pickerAddr       = "PICKER_ADDR"        // of all workers
	pickerAddrFirst  = "PICKER_ADDR_FIRST"  // of 127.0.0.11 and .12, at the first port
	pickerAddrSecond = "PICKER_ADDR_SECOND" // of 127.0.0.13 and ::1
)

// pickers are of four pools: all workers, two that share the workers between them, and one whose workers have parts to play.
type pickers struct {
	main, first, second, parts string // addresses; empty, but for main, where there is no picker of theirs
	ours                       []*picker
}

// part is a worker of a pool, and what the list of workers says of it beside its address.
type part struct {
	*worker
	more string
}

func alike(ws ...*worker) (parts []part) {
	for _, w := range ws {
		parts = append(parts, part{worker: w})
	}
	return parts
}

// picker is one `spokegate epp`.
type picker struct {
	addr, ops string
	cmd       *exec.Cmd
	exited    chan error
	out       bytes.Buffer
}

func startPickers(dir string, ws *workers) (*pickers, error) {
	if other := os.Getenv(pickerAddr); other != "" {
		return &pickers{main: other, first: os.Getenv(pickerAddrFirst), second: os.Getenv(pickerAddrSecond)}, nil
	}
	binary, err := build()
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(8, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	ps := &pickers{}
	for i, pool := range [][]part{alike(ws.all()...), alike(ws.one, ws.two), alike(ws.three, ws.six), {
		{ws.one, ", role: decode, ranks: 2"}, {ws.two, ", role: decode, ranks: 2"}, {ws.three, ", role: prefill, ranks: 2"},
	}} {
		p, err := startPicker(dir, binary, ports[2*i], ports[2*i+1], pool)
		if err != nil {
			return nil, errors.Join(err, ps.stop())
		}
		ps.ours = append(ps.ours, p)
	}
	ps.main, ps.first, ps.second, ps.parts = ps.ours[0].addr, ps.ours[1].addr, ps.ours[2].addr, ps.ours[3].addr
	return ps, nil
}

// build makes what `make build` makes, which costs nothing where that is there.
func build() (string, error) {
	binary, err := filepath.Abs("../../bin/spokegate")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "../../cmd/spokegate")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
}

func startPicker(dir, binary string, port, ops int, pool []part) (*picker, error) {
	var list strings.Builder
	list.WriteString("workers:\n")
	for i, w := range pool {
		fmt.Fprintf(&list, "  - {name: w%d, address: %q%s}\n", i, w.addr, w.more)
	}
	file := filepath.Join(dir, fmt.Sprintf("workers-%d.yaml", port))
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		return nil, err
	}
	p := &picker{addr: "127.0.0.1:" + strconv.Itoa(port), ops: "127.0.0.1:" + strconv.Itoa(ops), exited: make(chan error, 1)}
	p.cmd = exec.Command(binary, "epp", "-endpoint", "pool", "-workers", file, "-listen", p.addr, "-health-listen", "", "-ops", p.ops, "-drain-delay", "0s", "-drain", "1s")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := start(p.cmd, p.exited); err != nil {
		return nil, err
	}
	return p, p.await()
}

// await waits until it says by gRPC health that it may be asked.
func (p *picker) await() error {
	conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	for limit := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		r, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: "readiness"}, grpc.WaitForReady(true))
		cancel()
		if err == nil && r.GetStatus() == healthv1.HealthCheckResponse_SERVING {
			return nil
		}
		select {
		case err := <-p.exited:
			return fmt.Errorf("`spokegate epp` ended: %v\n%s", err, p.out.String())
		default:
		}
		if time.Now().After(limit) {
			return fmt.Errorf("`spokegate epp` is not ready in time: %v", err)
		}
	}
}

// tell says whether the picker of all workers tells what it believes of their load.
func (ps *pickers) tell() bool { return len(ps.ours) > 0 }

// load is how many requests it believes a worker to have; -1: it does not know the worker.
func (ps *pickers) load(addr string) int {
	return ps.gauge("spokegate_picker_worker_load{", `worker="`+addr+`"`, `kind="requests"`)
}

// heldBytes is how many bytes it holds of requests that are not whole.
func (ps *pickers) heldBytes() int { return ps.gauge("spokegate_picker_held_bytes ") }

// gauge is the sum of the series whose line begins so and has these in it; -1: there is none.
func (ps *pickers) gauge(begins string, has ...string) int {
	resp, err := http.Get("http://" + ps.ours[0].ops + "/metrics")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	n := -1
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		l := lines.Text()
		if !strings.HasPrefix(l, begins) || slices.ContainsFunc(has, func(h string) bool { return !strings.Contains(l, h) }) {
			continue
		}
		v, _ := strconv.ParseFloat(l[strings.LastIndexByte(l, ' ')+1:], 64)
		n = max(n, 0) + int(v)
	}
	return n
}

func (ps *pickers) stop() (err error) {
	for _, p := range ps.ours {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, p := range ps.ours {
		select {
		case ended := <-p.exited:
			if ended != nil || strings.Contains(p.out.String(), "DATA RACE") {
				err = errors.Join(err, fmt.Errorf("`spokegate epp` ended: %v\n%s", ended, p.out.String()))
			}
		case <-time.After(patience):
			_ = p.cmd.Process.Kill()
			err = errors.Join(err, errors.New("`spokegate epp` does not end on SIGTERM"))
		}
	}
	return err
}
