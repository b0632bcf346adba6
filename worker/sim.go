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
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spokegate/spokegate/enginemetrics"
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
	// KVEvents makes it publish what its block cache holds, in the same folder.
	KVEvents bool
	// Ranks simulated, each with a cache of its own; 0: one.
	Ranks int
	// Log of the child's lines; nil: the worker's.
	Log *slog.Logger
}

// simEngine runs the simulator on a socket in a folder that only this user can enter.
type simEngine struct {
	cfg       SimConfig
	socket    atomic.Pointer[string]
	transport *http.Transport
	probe     http.RoundTripper
	process   *process
}

var simSpeech = dialect{
	metrics:  "/metrics",
	families: enginemetrics.Sim,
}

// A simulator starts in a moment, has nothing to give up, and is always started again: it is for trying things out.
var simBounds = bounds{start: time.Minute, every: 20 * time.Millisecond, deaf: deafMost, stop: 5 * time.Second}

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
	e.process = &process{command: e.command, healthy: e.healthy, bounds: simBounds, reads: simSpeech, again: make(chan string, 1)}
	return e
}

func (e *simEngine) Kind() string                 { return "sim" }
func (e *simEngine) Base() *url.URL               { return &url.URL{Scheme: "http", Host: "engine"} }
func (e *simEngine) Transport() http.RoundTripper { return e.transport }
func (e *simEngine) speaks() dialect              { return simSpeech }
func (e *simEngine) restart(reason string)        { e.process.restart(reason) }

// KVSource: see KVAnnouncer.
func (e *simEngine) KVSource() (KVSource, bool) {
	if !e.cfg.KVEvents {
		return KVSource{Kind: "sim", Why: "the simulator was not told to publish KV events"}, false
	}
	s := KVSource{Kind: "sim"}
	for rank := range max(e.cfg.Ranks, 1) {
		suffix := ""
		if rank > 0 { // as vLLM does
			suffix = fmt.Sprintf("_dp%d", rank)
		}
		s.Events, s.Replay = append(s.Events, e.ipc("e")+suffix), append(s.Replay, e.ipc("r")+suffix)
	}
	return s, true
}

func (e *simEngine) ipc(name string) string { return "ipc://" + filepath.Join(e.cfg.Folder, name) }

func (e *simEngine) Run(ctx context.Context, log *slog.Logger, tell func(Life)) {
	if e.cfg.Log != nil {
		log = e.cfg.Log
	}
	defer e.transport.CloseIdleConnections()
	socket := filepath.Join(e.cfg.Folder, "s")
	err := makeFolder(e.cfg.Folder)
	if len(socket) > maxSocket {
		err = tooLong(socket)
	}
	if err != nil {
		log.Error("no folder for the engine's socket", "error", err)
		tell(failed(causeStart, err.Error()))
		<-ctx.Done()
		return
	}
	defer os.RemoveAll(e.cfg.Folder)
	e.socket.Store(&socket)
	e.process.log, e.process.tell = log, tell
	e.process.keep(ctx)
}

func (e *simEngine) command() (*exec.Cmd, error) {
	args := []string{"sim"}
	if e.cfg.Args != nil {
		args = append([]string(nil), e.cfg.Args...)
	}
	args = append(args, "-listen", "unix:"+*e.socket.Load(), "-model", strings.Join(e.cfg.Models, ","))
	if e.cfg.RatesFile != "" {
		args = append(args, "-rates", e.cfg.RatesFile)
	}
	if e.cfg.KVEvents {
		args = append(args, "-kv-events", e.ipc("e"), "-kv-replay", e.ipc("r"))
	}
	if e.cfg.Ranks > 1 {
		args = append(args, "-ranks", strconv.Itoa(e.cfg.Ranks))
	}
	cmd := exec.Command(e.cfg.Binary, args...)
	cmd.Env = e.cfg.Env
	return cmd, nil
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
