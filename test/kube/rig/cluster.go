package rig

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// patience is for what takes a moment, on a machine that does much else.
const patience = 2 * time.Minute

// Cluster is an etcd and an API server. Its methods may be called from several goroutines, but for those that stop or start
// the API server.
type Cluster struct {
	Admin   *rest.Config // may do all
	Client  kubernetes.Interface
	Dynamic dynamic.Interface

	root   string // of the repository
	dir    string // temporary
	ca     []byte
	etcd   *exec.Cmd
	api    *exec.Cmd
	port   int // of the API server, also when it is started again
	mapper *restmapper.DeferredDiscoveryRESTMapper

	etcdPort int

	mu         sync.Mutex
	namespaces int
}

// Start starts etcd and the API server on loopback ports, and applies the CRDs of Gateway API, Envoy Gateway,
// cert-manager and Prometheus' operator, and InferencePool from deploy/crds. It returns when all of them are served. The caller stops it.
func Start() (*Cluster, error) {
	c := &Cluster{}
	if err := c.start(); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start() (err error) {
	if c.root, err = repository(); err != nil {
		return err
	}
	if c.dir, err = os.MkdirTemp("/tmp", "sgkube"); err != nil {
		return err
	}
	if c.ca, err = writeCertificates(c.dir); err != nil {
		return err
	}
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // never fails
	token := hex.EncodeToString(secret)
	if err := os.WriteFile(c.path("tokens.csv"), []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(c.path("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	if c.etcdPort, err = freePort(); err != nil {
		return err
	}
	if c.port, err = freePort(); err != nil {
		return err
	}
	if err := c.startEtcd(); err != nil {
		return err
	}
	c.Admin = &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", c.port), BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca}, QPS: 1000, Burst: 1000,
	}
	if c.Client, err = kubernetes.NewForConfig(c.Admin); err != nil {
		return err
	}
	if c.Dynamic, err = dynamic.NewForConfig(c.Admin); err != nil {
		return err
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Client.Discovery()))
	if err := c.startAPI(); err != nil {
		return err
	}
	return c.applyCRDs()
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// repository is the folder that has go.mod, above where the test runs.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod above this folder")
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// launch starts a program whose output goes to a file of its name. It dies with us.
func (c *Cluster) launch(program string, args ...string) (*exec.Cmd, error) {
	log, err := os.OpenFile(c.path(filepath.Base(program)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd, startPinned(cmd)
}

// startPinned starts a program from a thread that stays: Pdeathsig is about the thread, and Go ends those that idle.
func startPinned(cmd *exec.Cmd) error {
	pinned.Do(func() { go pinnedLoop() })
	done := make(chan error)
	starts <- func() { done <- cmd.Start() }
	return <-done
}

func (c *Cluster) startEtcd() error {
	program, err := exec.LookPath("etcd")
	if err != nil {
		return errors.New("etcd is missing: run test/setup/kube.sh first")
	}
	at := fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort)
	c.etcd, err = c.launch(program, "--data-dir", c.path("etcd"), "--listen-client-urls", at, "--advertise-client-urls", at,
		"--listen-peer-urls", "http://127.0.0.1:0", "--unsafe-no-fsync", "--log-level", "warn")
	return err
}

// startAPI starts the API server and returns when it is ready.
func (c *Cluster) startAPI() error {
	program := filepath.Join(c.root, ".tools", "bin", "kube-apiserver")
	if _, err := os.Stat(program); err != nil {
		return errors.New("the API server is missing: run test/setup/kube.sh first")
	}
	var err error
	c.api, err = c.launch(program,
		"--etcd-servers", fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort),
		"--bind-address", "127.0.0.1", "--advertise-address", nodeAddress, "--secure-port", fmt.Sprint(c.port), "--endpoint-reconciler-type", "none",
		"--tls-cert-file", c.path("tls.crt"), "--tls-private-key-file", c.path("tls.key"), "--cert-dir", c.path("certs"),
		"--token-auth-file", c.path("tokens.csv"), "--authorization-mode", "RBAC", "--service-cluster-ip-range", serviceRange,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", c.path("tokens.key"),
		"--service-account-signing-key-file", c.path("tokens.key"), "--service-account-lookup=true",
		"--audit-policy-file", c.path("audit.yaml"), "--audit-log-path", c.path("audit.log"), "--audit-log-mode", "blocking")
	if err != nil {
		return err
	}
	err = Within(patience, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		log, _ := os.ReadFile(c.path("kube-apiserver.log"))
		return fmt.Errorf("%w\n%s", err, log[max(0, len(log)-4000):])
	}
	return nil
}

// StopAPI kills the API server, as a machine that fails does; StartAPI starts it again at the same address, on the same etcd.
func (c *Cluster) StopAPI(t testing.TB) {
	t.Helper()
	if err := end(c.api, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.api = nil
}

// StartAPI starts the API server after StopAPI, and returns when it is ready.
func (c *Cluster) StartAPI(t testing.TB) {
	t.Helper()
	if err := c.startAPI(); err != nil {
		t.Fatal(err)
	}
}

// Stop ends all processes and removes their files. It may be called twice.
func (c *Cluster) Stop() {
	_ = end(c.api, syscall.SIGKILL)
	_ = end(c.etcd, syscall.SIGKILL)
	c.api, c.etcd = nil, nil
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

// end signals a process, if there is one, and waits for its end.
func end(cmd *exec.Cmd, signal syscall.Signal) error {
	if cmd == nil || cmd.Process == nil {
		return nil
	}
	if err := cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = cmd.Wait()
	return nil
}

// Within asks for a fact until it is one, and gives the last reason why it is not.
func Within(patience time.Duration, fact func() error) error {
	for late := time.Now().Add(patience); ; time.Sleep(25 * time.Millisecond) {
		err := fact()
		if err == nil {
			return nil
		}
		if time.Now().After(late) {
			return fmt.Errorf("not so within %v: %w", patience, err)
		}
	}
}

// Eventually waits for a fact, with patience for a busy machine, and fails the test with the last reason why it is not one.
func Eventually(t testing.TB, fact func() error) {
	t.Helper()
	if err := Within(patience, fact); err != nil {
		t.Fatal(err)
	}
}
