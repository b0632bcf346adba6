package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spokegate/spokegate/worker"
)

// proxies measures a shim in this process beside a bare reverse proxy to the same engine, over 16 connections: requests of
// 1 KB, and streams whose engine tells usage with each chunk.
func proxies(ctx context.Context, o options) ([]figure, error) {
	dir, err := os.MkdirTemp("", "sgproxy")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	const token = "a join token that is only of this run"
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
		return nil, err
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return nil, err
	}
	s := &site{shim: &process{cmd: &exec.Cmd{Process: self}}} // all runs in this process
	if s.engine, err = newEngine(); err != nil {
		return nil, err
	}
	defer s.engine.lis.Close()
	if s.signer, err = newSigner(filepath.Join(dir, "sock"), filepath.Join(dir, "token")); err != nil {
		return nil, err
	}
	defer s.signer.close()
	shim, stop, err := shimHere(ctx, s.engine.url(), "unix:"+filepath.Join(dir, "sock"), token)
	if err != nil {
		return nil, err
	}
	defer stop()
	if _, err := s.signer.worker(ctx); err != nil {
		return nil, err
	}
	bare, err := bareProxy(s.engine.url())
	if err != nil {
		return nil, err
	}
	defer bare.Close()
	s.door = target{name: "door", address: shim, signs: true}
	s.plain = target{name: "plain", address: bare.Addr().String()}
	const note = "bare httputil.ReverseProxy"
	var all []figure
	if o.wants("worker.proxy") {
		plain, ours, err := s.compare(ctx, o, work{name: "shim and " + note + ", 1 KB, 16 connections", requests: requests("k", 1<<10, false), conns: 16})
		if err != nil {
			return nil, err
		}
		rps := func(r result) float64 { return r.rps }
		all = append(all, compared("worker.proxy", "requests/s", note, each(ours, rps), each(plain, rps)))
	}
	if o.wants("worker.chunk") {
		const chunks = 200
		plain, ours, err := s.compare(ctx, o, work{name: "shim and " + note + ", 16 streams at full speed", requests: requests("k", 1<<10, true), conns: 16, chunks: chunks})
		if err != nil {
			return nil, err
		}
		added := make([]float64, len(ours))
		for i := range ours { // engine and clients are in both
			added[i] = (ours[i].shim - plain[i].shim) * 1000 / chunks
		}
		all = append(all, alone("worker.chunk", "µs/chunk", "CPU beyond that of a "+note, added))
	}
	return all, nil
}

// shimHere runs a worker in this process.
func shimHere(ctx context.Context, engine, door, token string) (address string, stop func(), err error) {
	e, err := worker.NewAttached(engine, "")
	if err != nil {
		return "", nil, err
	}
	w, err := worker.New(worker.Config{Name: "bench", Spoke: "bench", Endpoint: "bench", Listen: "127.0.0.1:0", Doors: []string{door},
		JoinToken: token, Engine: e, Journal: noJournal{}, DrainTimeout: time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.Run(ctx) }()
	return w.Addr(), func() { cancel(); <-ended }, nil
}

// bareProxy is what everybody would write first.
func bareProxy(engine string) (net.Listener, error) {
	to, err := url.Parse(engine)
	if err != nil {
		return nil, err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := httputil.NewSingleHostReverseProxy(to)
	p.Transport = &http.Transport{MaxIdleConnsPerHost: 256}
	go func() { _ = http.Serve(lis, p) }()
	return lis, nil
}
