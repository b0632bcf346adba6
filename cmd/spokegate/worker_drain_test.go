package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spokegate/spokegate/worker"
)

// The order to drain is passed on, and who gave it is told how far it is, to the end.
func TestWorkerDrain(t *testing.T) {
	dir, err := os.MkdirTemp("", "sg") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	state := worker.Status{State: "ready", Running: 2}
	set := func(s worker.Status) { mu.Lock(); defer mu.Unlock(); state = s }
	ended := make(chan struct{})
	c := control{ended: ended, log: slog.New(slog.DiscardHandler), drain: func() { set(worker.Status{State: "draining", Running: 2}) },
		status: func() worker.Status { mu.Lock(); defer mu.Unlock(); return state }}
	socket := controlSocket(dir, "w1")
	stop, err := c.serve(socket)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	err = drainWorker(context.Background(), socket, func(line string) {
		said = append(said, line)
		switch line {
		case "draining, 2 running":
			set(worker.Status{State: "stopped"})
		case "stopped, 0 running":
			close(ended)
		}
	})
	if want := []string{"draining, 2 running", "stopped, 0 running", "ended"}; err != nil || !slices.Equal(said, want) {
		t.Errorf("%q %v", said, err)
	}
	stop()
	if err := drainWorker(context.Background(), socket, func(string) {}); err == nil || !strings.HasPrefix(err.Error(), "no worker listens at ") {
		t.Errorf("%v", err)
	}
}

// What would be a mistake of the operator's is told, before anything is started.
func TestEngineFlags(t *testing.T) {
	for want, e := range map[string]engineFlags{
		"there is no engine":                 {engine: "llama"},
		"a model is needed":                  {engine: "vllm"},
		"--port is not for you to set":       {engine: "vllm", model: "m", args: []string{"--port", "1"}},
		"the simulator takes no arguments":   {engine: "sim", args: []string{"--x"}},
		"that one runs already":              {engine: "sim", attach: "http://h:1", args: []string{"--x"}},
		"-engine-kind goes with -attach":     {engine: "sim", attachKind: "vllm"},
		"there is no engine \"x\": attached": {attach: "http://h:1", attachKind: "x"},
	} {
		if _, err := e.build("/tmp/r", "w", 0, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, e := range []engineFlags{{hung: 0}, {hung: 1, probe: -1}, {hung: 1, gpu: "ftp://x"}, {hung: 1, gpu: "http:///m"}} {
		if _, err := e.watch(); err == nil {
			t.Errorf("%+v is taken", e)
		}
	}
	if w, err := (&engineFlags{hung: 1, gpu: "http://h:9400/metrics"}).watch(); err != nil || w.Idle >= 0 || w.GPU.Host != "h:9400" {
		t.Errorf("%+v %v", w, err)
	}
	if ours, theirs := splitArgs([]string{"-name", "w", "--", "--x", "--"}); !slices.Equal(ours, []string{"-name", "w"}) || !slices.Equal(theirs, []string{"--x", "--"}) {
		t.Errorf("%q %q", ours, theirs)
	}
}
