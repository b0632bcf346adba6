package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/identity"
)

// policyText limits at every level, so that admission counts as in life, and so high that nothing is refused.
const policyText = `
platform: {limits: [{requests_per_second: 900000, concurrency: 900000}]}
models: [{name: bench, endpoint: bench}]
endpoints: [{name: bench}]
teams: [{name: t, models: [bench], limits: [{requests_per_second: 900000, concurrency: 900000}, {model: bench, concurrency: 900000}]}]
keys: [{id: k, team: t, sha256: "%s", limits: [{requests_per_second: 900000, concurrency: 900000}]}]
`

// site is everything that is measured: a door with its Envoy, a plain Envoy, a shim, an engine.
type site struct {
	dir    string
	key    string
	engine *engine
	signer *signer
	ops    string
	admin  string // of the door's Envoy
	door   target
	plain  target

	doorProcess, doorEnvoy, plainEnvoy, shim *process
	all                                      []*process
	removes                                  bool
}

// target is one side of a comparison.
type target struct {
	name      string
	address   string
	signs     bool       // the client brings the context
	processes []*process // whose CPU and memory are its own
}

func newSite(ctx context.Context, o options) (s *site, err error) {
	s = &site{dir: o.dir}
	if s.dir == "" {
		s.removes = true
		if s.dir, err = os.MkdirTemp("", "sgbench"); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return nil, err
	}
	if err = s.files(); err != nil {
		return nil, err
	}
	if s.engine, err = newEngine(); err != nil {
		return nil, err
	}
	if s.signer, err = newSigner(s.run("plain.sock"), s.run("join-token")); err != nil {
		return nil, err
	}
	return s, s.start(ctx, o)
}

func (s *site) run(name string) string { return filepath.Join(s.dir, "run", name) }

// files writes what the processes read.
func (s *site) files() error {
	if err := os.MkdirAll(s.run(""), 0o700); err != nil {
		return err
	}
	secret, hash := identity.NewKey()
	s.key = secret
	if err := os.WriteFile(s.run("policy.yaml"), fmt.Appendf(nil, policyText, hash), 0o600); err != nil {
		return err
	}
	var token [32]byte
	_, _ = rand.Read(token[:]) // never fails: see crypto/rand
	return os.WriteFile(s.run("join-token"), []byte(hex.EncodeToString(token[:])), 0o600)
}

// start runs the processes and waits until both sides can serve.
func (s *site) start(ctx context.Context, o options) (err error) {
	ports, err := freePorts(5)
	if err != nil {
		return err
	}
	s.ops, s.admin = ports[0], ports[1]
	s.door.address, s.plain.address = ports[2], ports[3]
	d := envoy.Door{Listen: s.door.address, Admin: s.admin, DoorSocket: s.run("door.sock"), Concurrency: o.threads}
	if err := writeJSON(s.run("door.json"), d.Bootstrap()); err != nil {
		return err
	}
	// As `up` has it on one machine.
	cores := fmt.Sprint("GOMAXPROCS=", max(1, runtime.GOMAXPROCS(0)/2))
	s.doorProcess = s.child(&err, "door", "env", cores, o.binary, "door", "-dir", s.dir, "-policy", s.run("policy.yaml"),
		"-join-token-file", s.run("join-token"), "-ops", s.ops, "-listen", s.door.address, "-admin", s.admin)
	s.doorEnvoy = s.child(&err, "envoy-door", envoy.Command(o.envoy, d, s.run("door.json"))...)
	s.shim = s.child(&err, "shim", "env", cores, o.binary, "worker", "-name", "bench", "-endpoint", "bench", "-dir", s.dir, "-drain", "1s",
		"-doors", "unix:"+s.run("fleet.sock")+",unix:"+s.run("plain.sock"), "-join-token-file", s.run("join-token"), "-attach", s.engine.url())
	if err != nil {
		return err
	}
	shim, err := s.signer.worker(ctx)
	if err != nil {
		return errors.Join(err, s.died())
	}
	if err := writeJSON(s.run("plain.json"), plainEnvoy(s.plain.address, ports[4], shim)); err != nil {
		return err
	}
	s.plainEnvoy = s.child(&err, "envoy-plain", envoy.Command(o.envoy, d, s.run("plain.json"))...)
	if err != nil {
		return err
	}
	s.door = target{"door", s.door.address, false, []*process{s.doorEnvoy, s.doorProcess}}
	s.plain = target{"plain", s.plain.address, true, []*process{s.plainEnvoy}}
	for _, url := range []string{"http://" + s.ops + "/readyz", "http://" + ports[4] + "/ready"} {
		if err := s.await(ctx, url); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) child(failed *error, name string, argv ...string) *process {
	if *failed != nil {
		return nil
	}
	p, err := start(s.dir, name, argv...)
	if err != nil {
		*failed = err
		return nil
	}
	s.all = append(s.all, p)
	return p
}

// await waits for 200.
func (s *site) await(ctx context.Context, url string) error {
	client := &http.Client{Timeout: time.Second}
	for last := "no answer"; ; {
		if err := s.died(); err != nil {
			return err
		}
		if resp, err := client.Get(url); err == nil {
			resp.Body.Close()
			if last = resp.Status; resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s (%s): %w", url, last, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *site) died() error {
	for _, p := range s.all {
		if err := p.died(); err != nil {
			return err
		}
	}
	return nil
}

// close ends all processes, clients first.
func (s *site) close() {
	for i := len(s.all) - 1; i >= 0; i-- {
		s.all[i].stop()
	}
	if s.signer != nil {
		s.signer.close()
	}
	if s.engine != nil {
		s.engine.lis.Close()
	}
	if s.removes {
		_ = os.RemoveAll(s.dir)
	}
}

// freePorts are addresses on loopback that nobody listens on.
func freePorts(n int) (addresses []string, err error) {
	for range n {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer lis.Close()
		addresses = append(addresses, lis.Addr().String())
	}
	return addresses, nil
}

func writeJSON(path string, m proto.Message) error {
	data, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
