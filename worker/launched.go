package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// LaunchConfig is an engine that the shim runs as a child process, below a Guard.
type LaunchConfig struct {
	// Kind of engine: see Kinds.
	Kind string
	// Guard is the command that becomes Guard with the arguments that follow it.
	Guard []string
	// Folder is made for the engine's sockets and secrets, for this user alone, and removed at the end with all that is in it.
	// No two engines may share one; what a killed shim left there is removed at the start.
	Folder string
	// Command starts it, before the arguments; nil: the kind's own, as on its machines.
	Command []string
	// Model is what it loads: a folder, or a name that it knows. ServedName is what requests call it; empty: the same.
	Model, ServedName string
	// Args of the operator. Those that the shim sets itself are refused.
	Args []string
	// Env of the child, "NAME=value"; nil: that of this process.
	Env []string
	// Loopback makes it listen on 127.0.0.1 with a random API key, where it could on a Unix socket: for releases that cannot.
	Loopback bool
	// StartTimeout is how long it may take to be healthy: 0: 30 minutes. StopTimeout is between SIGTERM and SIGKILL, 0: 30 s;
	// nothing is in flight then.
	StartTimeout, StopTimeout time.Duration
	// After Crashes failures within CrashWindow it is not started again; 0: it always is. CrashWindow 0: 10 minutes.
	Crashes     int
	CrashWindow time.Duration
	// Log of the child's lines; nil: the worker's.
	Log *slog.Logger
}

// kind is an engine that can be launched: what differs stays in its own file.
type kind struct {
	dialect
	command  []string // as on its machines
	sockets  bool     // it can listen on a Unix socket
	reserved []string // its flags that the shim sets, or that would break what the shim relies on
	// arguments are those of the shim, for a start at l.
	arguments func(l *launched) (args, env []string, err error)
	// healthy says that it is up, and what it says of its blocks.
	healthy func(ctx context.Context, l *launched) (Description, error)
	// source of its KV events.
	source func(l *launched) KVSource
	// open are the paths that its API key leaves open; for people.
	open string
}

var kinds = map[string]kind{"vllm": vllm, "sglang": sglang, "trtllm": trtllm}

// Kinds are the engines that can be launched.
func Kinds() []string { return []string{"sglang", "trtllm", "vllm"} }

// launched is an engine of one of the kinds.
type launched struct {
	cfg       LaunchConfig
	kind      kind
	log       *slog.Logger
	address   atomic.Pointer[string] // unix path, or host:port; nil: not started yet
	key       string                 // API key; empty: it listens on a socket, or knows none
	transport http.RoundTripper
	conns     *http.Transport
	probe     http.RoundTripper
	process   *process
}

// NewLaunched makes an engine of a kind. It starts with Run.
func NewLaunched(cfg LaunchConfig) (Engine, error) {
	k, ok := kinds[cfg.Kind]
	switch {
	case !ok:
		return nil, fmt.Errorf("there is no engine %q: %s expected", cfg.Kind, strings.Join(Kinds(), ", "))
	case cfg.Model == "":
		return nil, errors.New("a model is needed: the folder that the engine loads")
	case cfg.Crashes < 0:
		return nil, errors.New("a number of crashes below 0")
	}
	if err := refuseReserved(cfg.Kind, k.reserved, cfg.Args); err != nil {
		return nil, err
	}
	setDefault(&cfg.StartTimeout, 30*time.Minute)
	setDefault(&cfg.StopTimeout, 30*time.Second)
	setDefault(&cfg.CrashWindow, 10*time.Minute)
	if cfg.ServedName == "" {
		cfg.ServedName = cfg.Model
	}
	if len(cfg.Command) == 0 {
		cfg.Command = k.command
	}
	l := &launched{cfg: cfg, kind: k}
	if socket := l.path("s"); l.onSocket() && len(socket) > maxSocket {
		return nil, tooLong(socket)
	}
	if !l.onSocket() {
		l.key = rand.Text()
	}
	l.conns = newTransport(l.dial)
	l.transport, l.probe = keyed(l.key, l.conns), keyed(l.key, newProbe(l.dial))
	l.process = &process{
		command: l.command, guarded: true, healthy: func(ctx context.Context) (Description, error) { return k.healthy(ctx, l) },
		bounds: bounds{start: cfg.StartTimeout, every: 250 * time.Millisecond, deaf: deafMost, stop: cfg.StopTimeout, crashes: cfg.Crashes, window: cfg.CrashWindow},
		reads:  k.dialect, again: make(chan string, 1),
	}
	return l, nil
}

func (l *launched) Kind() string                 { return l.cfg.Kind }
func (l *launched) Base() *url.URL               { return &url.URL{Scheme: "http", Host: "engine"} }
func (l *launched) Transport() http.RoundTripper { return l.transport }
func (l *launched) speaks() dialect              { return l.kind.dialect }
func (l *launched) restart(reason string)        { l.process.restart(reason) }
func (l *launched) path(name string) string      { return filepath.Join(l.cfg.Folder, name) }
func (l *launched) onSocket() bool               { return l.kind.sockets && !l.cfg.Loopback }

// KVSource: see KVAnnouncer.
func (l *launched) KVSource() (KVSource, bool) {
	s := l.kind.source(l)
	s.Kind = l.cfg.Kind
	if dir, err := os.Stat(l.cfg.Model); err == nil && dir.IsDir() {
		s.ModelDir = l.cfg.Model
	}
	return s, len(s.Events) > 0
}

func (l *launched) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	network, at := "tcp", l.address.Load()
	if l.onSocket() {
		network = "unix"
	}
	if at == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrNotExist}
	}
	return new(net.Dialer).DialContext(ctx, network, *at)
}

// Run: see Engine.
func (l *launched) Run(ctx context.Context, log *slog.Logger, tell func(Life)) {
	if l.cfg.Log != nil {
		log = l.cfg.Log
	}
	defer l.conns.CloseIdleConnections()
	if err := makeFolder(l.cfg.Folder); err != nil {
		log.Error("no folder for the engine", "error", err)
		tell(failed(causeStart, err.Error()))
		<-ctx.Done()
		return
	}
	defer os.RemoveAll(l.cfg.Folder)
	if !l.onSocket() {
		log.Warn("the engine listens on 127.0.0.1: who has a login on this machine reaches what its API key leaves open",
			"engine", l.cfg.Kind, "open", l.kind.open)
	}
	l.log, l.process.log, l.process.tell = log, log, tell
	l.process.keep(ctx)
}

// command for one start: a new place to listen at each time, for the one before may not have left it yet.
func (l *launched) command() (*exec.Cmd, error) {
	if l.onSocket() {
		socket := l.path("s")
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		l.address.Store(&socket)
	} else {
		at, err := freePort()
		if err != nil {
			return nil, err
		}
		l.address.Store(&at)
	}
	args, env, err := l.kind.arguments(l)
	if err != nil {
		return nil, err
	}
	argv := slices.Concat(l.cfg.Guard, l.cfg.Command, args, l.cfg.Args)
	cmd := exec.Command(argv[0], argv[1:]...)
	if cmd.Env = l.cfg.Env; cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(slices.Clone(cmd.Env), env...)
	l.log.Info("starting the engine", "command", strings.Join(slices.Concat(l.cfg.Command, args, l.cfg.Args), " "))
	return cmd, nil
}

// up asks a path for 200 and nothing else.
func (l *launched) up(ctx context.Context, path string) error {
	resp, err := get(ctx, l.Base(), l.probe, path)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// freePort is one that was free a moment ago; where it is taken since, the engine does not start and the next start has another.
func freePort() (string, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer lis.Close()
	return lis.Addr().String(), nil
}

// maxSocket is what fits the kernel's sockaddr_un.
const maxSocket = 107

func tooLong(socket string) error {
	return fmt.Errorf("the socket's path %s is longer than %d bytes: a shorter folder is needed", socket, maxSocket)
}

// makeFolder makes an empty one that only this user enters.
func makeFolder(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Mkdir(path, 0o700)
}

// refuseReserved names the first argument that is the shim's own affair. "--flag", "--flag=value" and "--fl_ag" are the same.
func refuseReserved(kind string, reserved, args []string) error {
	for _, arg := range args {
		flag, _, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(flag, "-") {
			continue
		}
		flag = strings.ReplaceAll(flag, "_", "-")
		if slices.Contains(reserved, flag) {
			return fmt.Errorf("%s is not for you to set: the worker sets it, or relies on it being as it is. See docs/workers.md for what stands in its place with -engine %s", flag, kind)
		}
	}
	return nil
}

// flagValue is the value of the last of the flags in args, as "--flag value" or "--flag=value"; "" where there is none.
func flagValue(args []string, flags ...string) (value string) {
	for i, arg := range args {
		flag, given, joined := strings.Cut(arg, "=")
		if !slices.Contains(flags, strings.ReplaceAll(flag, "_", "-")) {
			continue
		}
		if joined {
			value = given
		} else if i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

// keyed adds the API key to each request; empty: nothing.
func keyed(key string, to http.RoundTripper) http.RoundTripper {
	if key == "" {
		return to
	}
	return withKey{"Bearer " + key, to}
}

type withKey struct {
	authorization string
	to            http.RoundTripper
}

func (k withKey) RoundTrip(q *http.Request) (*http.Response, error) {
	out := q.WithContext(q.Context()) // a copy: a RoundTripper changes no request
	out.Header = maps.Clone(q.Header)
	if out.Header == nil {
		out.Header = http.Header{}
	}
	out.Header["Authorization"] = []string{k.authorization}
	return k.to.RoundTrip(out)
}
