package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds"
)

// TestADoorThatWaitsSaysSo: it lives and is not ready, with the reason, until it has a policy; then its address is free for the
// door itself.
func TestADoorThatWaitsSaysSo(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := lis.Addr().String()
	_ = lis.Close()
	log := slog.New(slog.DiscardHandler)
	d := &door{doorFlags: doorFlags{ops: address}, log: log, registry: newRegistry()}
	d.agent = xds.NewAgent(t.TempDir(), &policy.Current{}, xds.NewFile("/nowhere", log), xds.Options{Log: log})
	done := d.tellWaiting()
	said := ""
	for deadline := time.Now().Add(3 * time.Minute); !strings.Contains(said, "never was one here"); {
		if time.Now().After(deadline) {
			t.Fatalf("it says %q", said)
		}
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if said = string(body); resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("%s: %s", resp.Status, said)
		}
	}
	done()
	if lis, err = net.Listen("tcp", address); err != nil {
		t.Fatalf("its address is not free: %v", err)
	}
	_ = lis.Close()
	d.tellWaiting()() // and one that has its policy at once says nothing
}
