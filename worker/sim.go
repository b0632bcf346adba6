package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// SimConfig is a simulated engine, run as a child process.
type SimConfig struct {
	// Binary is the spokegate executable; its subcommand sim is run.
	Binary string
	// Folder is made for the engine's socket, for this user alone, and removed at the end with all that is in it. No two
	// engines may share one; what a killed shim left there is removed at the start.
	Folder string
	// Models are the names it serves; empty: every name.
	Models []string
	// RatesFile; empty: the simulator's own rates.
	RatesFile string
	// Args come before all others in the place of "sim"; for tests.
	Args []string
	// Env of the child, "NAME=value"; nil: that of this process.
	Env []string
	// Log of the child's lines; nil: the worker's.
	Log *slog.Logger
}

// simEngine runs the simulator on a socket in a folder that only this user can enter.
type simEngine struct {
	cfg       SimConfig
	socket    atomic.Pointer[string]
	transport *http.Transport
	probe     http.RoundTripper
}

// NewSim makes an engine that runs the simulator as a child process.
func NewSim(cfg SimConfig) Engine {
	e := &simEngine{cfg: cfg}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		path := e.socket.Load()
		if path == nil {
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: os.ErrNotExist}
		}
		return new(net.Dialer).DialContext(ctx, "unix", *path)
	}
	e.transport, e.probe = newTransport(dial), newProbe(dial)
	return e
}

func (e *simEngine) Kind() string                 { return "sim" }
func (e *simEngine) Base() *url.URL               { return &url.URL{Scheme: "http", Host: "engine"} }
func (e *simEngine) Transport() http.RoundTripper { return e.transport }

func (e *simEngine) Run(ctx context.Context, log *slog.Logger, tell func(Life)) {
	if e.cfg.Log != nil {
		log = e.cfg.Log
	}
	defer e.transport.CloseIdleConnections()
	socket := filepath.Join(e.cfg.Folder, "s")
	if err := e.makeFolder(socket); err != nil {
		log.Error("no folder for the engine's socket", "error", err)
		tell(Life{State: workerv1.State_STATE_FAILED, Reason: err.Error()})
		<-ctx.Done()
		return
	}
	defer os.RemoveAll(e.cfg.Folder)
	e.socket.Store(&socket)
	p := &process{command: func() *exec.Cmd { return e.command(socket) }, healthy: e.healthy, log: log, tell: tell}
	p.keep(ctx)
}

// maxSocket is what fits the kernel's sockaddr_un.
const maxSocket = 107

func (e *simEngine) makeFolder(socket string) error {
	if len(socket) > maxSocket {
		return fmt.Errorf("the socket's path %s is longer than %d bytes: a shorter folder is needed", socket, maxSocket)
	}
	if err := os.RemoveAll(e.cfg.Folder); err != nil {
		return err
	}
	return os.Mkdir(e.cfg.Folder, 0o700)
}

func (e *simEngine) command(socket string) *exec.Cmd {
	args := []string{"sim"}
	if e.cfg.Args != nil {
		args = append([]string(nil), e.cfg.Args...)
	}
	args = append(args, "-listen", "unix:"+socket, "-model", strings.Join(e.cfg.Models, ","))
	if e.cfg.RatesFile != "" {
		args = append(args, "-rates", e.cfg.RatesFile)
	}
	cmd := exec.Command(e.cfg.Binary, args...)
	cmd.Env = e.cfg.Env
	return cmd
}

// healthy asks the simulator about itself.
func (e *simEngine) healthy(ctx context.Context) (Description, error) {
	var info struct {
		BlockSize uint32 `json:"block_size"`
		Blocks    uint64 `json:"blocks"`
	}
	resp, err := get(ctx, e.Base(), e.probe, "/sim/info")
	if err != nil {
		return Description{}, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil {
		return Description{}, fmt.Errorf("/sim/info: %w", err)
	}
	return Description{BlockSize: info.BlockSize, Blocks: info.Blocks}, nil
}
