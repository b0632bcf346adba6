package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/sim"
	"github.com/spokegate/spokegate/worker"
)

// site is the folder that `up` works in and what it found or made there, with every path absolute.
type site struct {
	dir       string
	self      string // our own binary
	envoy     string // Envoy's
	bootstrap string
	policy    string // the user's file; of a site with a hub, the demo's, which is the hub's first revision
	hub       *upHub // nil: the policy is a file
	joinToken string
	envFile   string
	demoKey   string // file that keeps the demo policy's key from run to run
	key       string // empty: not known, since a policy holds only hashes
	endpoints []string
	models    []string
	lock      *os.File
}

// prepare checks all that can be checked before anything starts, so that what is wrong is one sentence.
func prepare(ctx context.Context, u *upFlags) (*site, error) {
	if u.workers < 1 || u.workers > 64 {
		return nil, fmt.Errorf("-workers %d: want 1 to 64", u.workers)
	}
	for _, engine := range u.attach {
		if _, err := worker.NewAttached(engine, ""); err != nil {
			return nil, fmt.Errorf("-attach: %w", err)
		}
	}
	if u.rates != "" {
		if _, err := sim.LoadRates(u.rates); err != nil {
			return nil, fmt.Errorf("-rates: %w", err)
		}
	}
	s, err := openSite(u.door.dir)
	if err != nil {
		return nil, err
	}
	ok := false
	defer func() {
		if !ok {
			s.close()
		}
	}()
	u.door.dir = s.dir
	if err := u.door.complete(); err != nil {
		return nil, err
	}
	if u.door.fleetFlags.tls.Given() {
		return nil, errors.New("-fleet-cert, -fleet-key and -fleet-ca are for doors with workers on other machines: those that `up` starts are on this one's loopback, unencrypted")
	}
	if u.door.hubFlags.address != "" {
		return nil, errors.New("-hub is for a door by itself: `up` starts a hub of its own, or serves the -policy that you give it")
	}
	if s.envoy, err = findEnvoy(u.envoy); err != nil {
		return nil, err
	}
	taken := map[string]string{"listen": u.door.envoy.Listen, "admin": u.door.envoy.Admin, "ops": u.door.ops}
	if u.door.policy == "" {
		taken["hub-listen"] = u.hubListen
	}
	if err := checkFree(taken); err != nil {
		return nil, err
	}
	if err := s.loadPolicy(ctx, u); err != nil {
		return nil, err
	}
	if err := s.writeRunFiles(u); err != nil {
		return nil, err
	}
	ok = true
	return s, nil
}

// openSite makes the folder and takes its lock: two in one folder would steal each other's sockets.
func openSite(dir string) (*site, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	lock, err := holdRun(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "log"), 0o700); err != nil {
		lock.Close()
		return nil, err
	}
	return &site{dir: dir, self: self, lock: lock, envFile: filepath.Join(dir, "env"), demoKey: filepath.Join(dir, "demo.key"),
		bootstrap: filepath.Join(dir, "run", "envoy.json"), joinToken: filepath.Join(dir, "run", "join-token")}, nil
}

func (s *site) close() { s.lock.Close() }

// findEnvoy looks where the Makefile puts it, and on PATH.
func findEnvoy(flag string) (string, error) {
	for _, path := range []string{flag, ".tools/envoy/envoy"} {
		if path == "" {
			continue
		}
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return filepath.Abs(path)
		}
		if path == flag {
			return "", fmt.Errorf("-envoy %s: there is no such file", flag)
		}
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		return "", errors.New("no Envoy is found: run `make envoy`, or name its binary with -envoy")
	}
	return path, nil
}

// checkFree holds all addresses at once for a moment, so that two flags with one address are found as well.
func checkFree(byFlag map[string]string) error {
	for flag, address := range byFlag {
		lis, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%s is taken by another program or flag: stop it, or choose another address with -%s", address, flag)
		} else if err != nil {
			return fmt.Errorf("-%s %s: %w", flag, address, err)
		}
		defer lis.Close()
	}
	return nil
}

// loadPolicy takes the user's policy, or what the hub said last, or makes the demo's with a fresh key.
func (s *site) loadPolicy(ctx context.Context, u *upFlags) error {
	snap, err := s.findPolicy(ctx, u)
	if err != nil {
		return err
	}
	set, err := snap.Cut().Set()
	if err != nil {
		return err
	}
	s.endpoints, s.models = endpointNames(snap), modelNames(set)
	if len(s.endpoints) == 0 || len(s.models) == 0 {
		return fmt.Errorf("%s: it names no model, so there is nothing to serve", s.policy)
	}
	s.chooseKey(snap)
	return nil
}

func (s *site) findPolicy(ctx context.Context, u *upFlags) (snap *policy.Snapshot, err error) {
	if s.policy, err = filepath.Abs(u.door.policy); err != nil {
		return nil, err
	}
	if u.door.policy == "" {
		s.hub, s.policy = newUpHub(s.dir, u.hubListen), filepath.Join(s.dir, "demo.yaml")
		if snap = s.hub.last(s.dir); snap != nil {
			return snap, nil
		}
		if err := s.ensureDemo(ctx, u.attach); err != nil {
			return nil, err
		}
	}
	_, snap, err = readPolicy(s.policy)
	return snap, err
}

// chooseKey takes the key that works under the policy, the user's before the demo's, and a model that it may use.
func (s *site) chooseKey(snap *policy.Snapshot) {
	demo, _ := os.ReadFile(s.demoKey)
	for _, key := range []string{os.Getenv("SPOKEGATE_KEY"), strings.TrimSpace(string(demo))} {
		h, ok := identity.ParseKey(key)
		if !ok {
			continue
		}
		if k := snap.Key(h); k != nil && k.Refused(time.Now()) == "" && len(snap.Models(k)) > 0 {
			s.key, s.models = key, []string{snap.Models(k)[0].Name}
			return
		}
	}
}

// ensureDemo writes the demo's policy and its key where there is no policy; one that is there is the user's.
func (s *site) ensureDemo(ctx context.Context, attach []string) error {
	if _, err := os.Stat(s.policy); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	models := []string{"sim-small", "sim-large"}
	for i, url := range attach {
		served, err := engineModels(ctx, url)
		if err != nil {
			return err
		}
		slices.Sort(served)
		if i > 0 && !slices.Equal(served, models) {
			return fmt.Errorf("-attach %s: it serves %q, and the first engine %q; write a policy and pass it with -policy", url, served, models)
		}
		models = served
	}
	secret, hash := identity.NewKey()
	text := policy.Demo("demo", models, hash.String())
	if text == nil {
		return fmt.Errorf("the engine's models %q cannot be named in a policy as they are; write one and pass it with -policy", models)
	}
	if err := os.WriteFile(s.demoKey, []byte(secret+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "policy.schema.json"), policy.Schema(), 0o600); err != nil { // the demo's first line names it
		return err
	}
	return os.WriteFile(s.policy, text, 0o600) // last: what is there is whole
}

// writeRunFiles writes what the children read.
func (s *site) writeRunFiles(u *upFlags) error {
	if err := writeBootstrap(s.bootstrap, u.door.envoy); err != nil {
		return err
	}
	if err := s.ensureToken(u.door.fleetFlags.tokenFile); err != nil {
		return err
	}
	if s.hub != nil {
		if err := writeSecret(s.hub.token); err != nil {
			return err
		}
	}
	return s.writeEnv(u.door.url())
}

// ensureToken takes the user's join token, or makes one for this run.
func (s *site) ensureToken(given string) error {
	if given != "" {
		s.joinToken = given
		_, err := readToken(given)
		return err
	}
	return writeSecret(s.joinToken)
}

// writeSecret makes a new one, for this run.
func writeSecret(path string) error {
	var token [32]byte
	_, _ = rand.Read(token[:]) // never fails: see crypto/rand
	return os.WriteFile(path, []byte(hex.EncodeToString(token[:])+"\n"), 0o600)
}

// writeEnv tells scripts and SDKs where the door is. It holds the demo's key, so it is for this user only.
func (s *site) writeEnv(url string) error {
	text := fmt.Sprintf("SPOKEGATE_URL=%s\nSPOKEGATE_KEY=%s\nSPOKEGATE_DIR=%s\n", url, s.key, s.dir)
	if s.hub != nil {
		text += s.hub.env()
	}
	tmp := s.envFile + ".new"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, s.envFile)
}
