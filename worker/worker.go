package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

const (
	// abortMost is how long cut requests may take to end after the drain has timed out.
	abortMost = 5 * time.Second
	// lingerMost is how long doors are told that the worker has stopped, and connections may take to close.
	lingerMost = 2 * time.Second
)

// Worker is one shim with its engine.
type Worker struct {
	cfg       Config
	log       *slog.Logger
	listener  net.Listener
	address   string
	base      *url.URL
	transport http.RoundTripper
	peers     *http.Transport // to other workers
	decoder   *openai.Decoder
	verifier  *identity.Verifier
	keys      *keys
	doors     doors
	seeds     *seeds
	states    *states
	monitor   *monitor // nil: the engine's own word is believed
	metrics   metrics
	running   *running
	begun     begun
}

// New listens, and does nothing more before Run. Run must be called to free the listener.
func New(cfg Config) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, log: cfg.Log.With("worker", cfg.Name), base: cfg.Engine.Base(), transport: cfg.Engine.Transport(), peers: cfg.newPeers(), decoder: openai.NewDecoder(cfg.MaxBody),
		verifier: identity.NewVerifier(cfg.Endpoint), states: newStates(), running: newRunning(),
	}
	w.seeds = newSeeds(w.log)
	w.keys = newKeys(w.verifier, cfg.keyLife)
	w.metrics = newMetrics(cfg.Registerer, w.states.count)
	if w.monitor = newMonitor(cfg, w.states, w.log); w.monitor != nil {
		w.transport = w.monitor.traffic
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(newStateMetric(w.states))
	}
	if w.listener, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if w.address, err = cfg.advertised(w.listener.Addr()); err != nil {
		w.listener.Close()
		return nil, err
	}
	return w, nil
}

// Addr is what the doors are told, ip:port.
func (w *Worker) Addr() string { return w.address }

// Run serves until ctx ends, then drains: no new requests after DrainDelay, those in flight go on up to DrainTimeout, then the engine is
// stopped and the doors are told. It returns early only if it cannot serve.
func (w *Worker) Run(ctx context.Context) error {
	life, endLife := context.WithCancel(context.WithoutCancel(ctx))
	defer endLife()
	engine, stopEngine := context.WithCancel(life)
	defer stopEngine()
	stopping, stop := context.WithCancel(life)
	defer stop()

	server := w.server()
	served := make(chan error, 1)
	go func() { served <- w.serve(server) }()
	var engines, doors, monitors sync.WaitGroup
	if w.monitor != nil {
		monitors.Go(func() { w.monitor.run(life) })
	}
	engines.Go(func() { w.cfg.Engine.Run(engine, w.log, w.tell) })
	for _, target := range w.cfg.Doors { // all of them, before one is joined
		w.doors.know(target)
	}
	for _, target := range w.cfg.Doors {
		doors.Go(func() { w.join(life, stopping, target) })
	}
	var failed error
	select {
	case failed = <-served:
		served <- failed
	case <-ctx.Done():
	}
	// The order of the end. Each step needs that the one before is over.
	w.drain()
	w.monitor.finish()
	stopEngine()
	engines.Wait()
	w.states.stop()
	stop()
	linger := time.AfterFunc(lingerMost, endLife)
	doors.Wait()
	linger.Stop()
	endLife()
	monitors.Wait()
	w.keys.close()
	w.peers.CloseIdleConnections()
	w.shut(server)
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		failed = err
	}
	return failed
}

// drain has doors send nobody any more, waits for the requests in flight, and cuts those that take too long.
func (w *Worker) drain() {
	w.states.leaveDoors()
	within(nil, w.cfg.DrainDelay)
	idle := w.states.drain()
	w.log.Info("draining", "running", w.states.count(), "at_most", w.cfg.DrainTimeout)
	if within(idle, w.cfg.DrainTimeout) {
		return
	}
	w.log.Warn("drain timed out", "running", w.states.count())
	w.running.cutAll()
	if !within(idle, abortMost) {
		w.log.Error("requests did not end", "running", w.states.count())
	}
}

func within(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

func (w *Worker) shut(server *http.Server) {
	grace, cancel := context.WithTimeout(context.Background(), lingerMost)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
	}
}

// tell takes the engine's life, and says each change.
func (w *Worker) tell(l Life) {
	if w.monitor != nil {
		w.monitor.lives.put(l)
		return
	}
	w.log.Info("engine", "state", l.State.String(), "reason", l.Reason, "epoch", l.Epoch)
	w.states.tell(l)
}

// cut takes a door's word that a request must end.
func (w *Worker) cut(admission, reason string) {
	if w.running.cut(admission, reason, time.Now()) {
		w.log.Info("cut", "admission", admission, "reason", reason)
	}
}

// join keeps the worker joined to the door, or to the doors, that a target stands for.
func (w *Worker) join(life, stopping context.Context, target string) {
	host, isName, _ := DoorHost(target) // checked in New
	if !isName {
		w.door(target, "").run(life, stopping)
		return
	}
	run := func(stopping context.Context, target string) { w.door(target, host).run(life, stopping) }
	n := &namedDoors{target: target, host: host, port: target[strings.LastIndexByte(target, ':')+1:], resolver: w.cfg.resolver, every: w.cfg.lookEvery,
		run: run, doors: &w.doors, log: w.log, leave: map[string]context.CancelFunc{}}
	n.follow(stopping)
}

// door is one that is known by host to its certificate; empty: by target.
func (w *Worker) door(target, host string) *door {
	return &door{target: target, host: strings.TrimSuffix(host, "."), token: w.cfg.JoinToken, secure: w.cfg.DoorCredentials, states: w.states, keys: w.keys,
		doors: &w.doors, seeds: w.seeds, begun: &w.begun, cut: w.cut, log: w.log, hello: func(d Description) *workerv1.Hello {
			return &workerv1.Hello{
				Worker: w.cfg.Name, Endpoint: w.cfg.Endpoint, Address: w.address, Engine: w.cfg.Engine.Kind(),
				Epoch: d.Epoch, BlockSize: d.BlockSize, Blocks: d.Blocks, BlocksAddress: w.cfg.BlocksAddress, Version: w.cfg.Version,
				Ranks: uint32(w.cfg.Ranks), Role: w.cfg.Role, Macs: true,
			}
		}}
}

// serve takes connections until the server is shut.
func (w *Worker) serve(server *http.Server) error {
	if w.cfg.TLS != nil {
		return server.ServeTLS(w.listener, "", "")
	}
	return server.Serve(clients{w.listener})
}

// server speaks HTTP/1.1 and HTTP/2, encrypted or not. Nothing bounds how long a response takes; a request's body is bounded where it is read.
func (w *Worker) server() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(w.cfg.TLS == nil)
	return &http.Server{
		Handler: w, ConnContext: withClient, TLSConfig: w.cfg.TLS.Clone(), Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 4096},
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Hour, // Envoy closes an idle connection after 30 s: it is to be the one that does
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(w.log.Handler(), slog.LevelDebug),
	}
}
