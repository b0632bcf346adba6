package main

import (
	"context"
	"log/slog"
	"os"
	"time"
)

// drainPoll is how often a draining Envoy is asked what runs.
const drainPoll = 200 * time.Millisecond

// empty makes Envoy turn clients away, and returns when nothing runs there any more, or has run for too long, or ctx is done.
// First health says no, and all that comes is still served: a balancer sees it late. Each answer from then on tells its client
// to leave the connection (HTTP/1.1 by its header, HTTP/2 by GOAWAY). Then those are left on which nothing is asked.
func (e *envoyRunFlags) empty(ctx context.Context, admin *envoyAdmin, log *slog.Logger) {
	defer admin.close()
	log.Info("draining", "delay", e.delay.String(), "most", e.drain.String())
	ctx, cancel := context.WithTimeout(ctx, e.delay+e.drain)
	defer cancel()
	admin.insist(ctx, "/healthcheck/fail", log)
	if !pause(ctx, e.delay) {
		return
	}
	admin.insist(ctx, "/drain_listeners?graceful&skip_exit", log)
	if err := writeDrainFile(e.door.envoy.DrainFile, "1"); err != nil {
		log.Warn("idle connections will be closed without a word", "error", err)
	}
	var said clientele
	begun, quiet := time.Now(), time.Time{}
	for {
		now, err := admin.clientele(ctx)
		switch {
		case err != nil || now.running > 0:
			quiet = time.Time{}
		case quiet.IsZero():
			quiet = time.Now()
		}
		left := now.connected == 0 || time.Since(begun) > e.idle
		if left && !quiet.IsZero() && time.Since(quiet) >= e.settle { // what Envoy has to tell the door of the last request is told
			log.Info("nothing runs any more", "connections", now.connected)
			return
		}
		if err == nil && now.running != said.running {
			said = now
			log.Info("requests run", "running", now.running, "connections", now.connected)
		}
		if !pause(ctx, drainPoll) {
			log.Warn("what runs still is cut", "running", said.running)
			return
		}
	}
}

// writeDrainFile puts a file in its place that Envoy.DrainFile is.
func writeDrainFile(path, pressure string) error {
	if err := os.WriteFile(path+".new", []byte(pressure+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
