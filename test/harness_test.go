package test

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// bench is what all tests share: the binary, Envoy, and the installations that several tests look at.
type bench struct {
	root   string // of the repository
	binary string
	envoy  string // empty: missing, and every test that needs it fails
	race   bool
	temp   string
	rates  sync.Once // of the file in temp: see ratesFile

	mu     sync.Mutex
	shared map[string]*sharedUp
}

// lab is the one bench; TestMain has no other way to hand it to tests.
var lab bench

type sharedUp struct {
	once sync.Once
	up   *up
	err  error
}

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return 1, err
	}
	temp, err := os.MkdirTemp("/tmp", "sgbin")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(temp)
	lab = bench{root: root, temp: temp, race: os.Getenv("SPOKEGATE_RACE") == "1", shared: map[string]*sharedUp{}}
	if err := lab.build(); err != nil {
		return 1, err
	}
	lab.findEnvoy()
	moreAtOnce()
	code := m.Run()
	return code, lab.close()
}

// moreAtOnce lets more tests run at once than there are cores, unless the command line says how many: they mostly wait.
func moreAtOnce() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	switch {
	case given:
	case lab.race:
		_ = flag.Set("test.parallel", "3")
	default:
		_ = flag.Set("test.parallel", "8")
	}
}

// scaled is how much load a test makes: less with the race detector, under which everything is ten times as slow.
func (b *bench) scaled(n int) int {
	if b.race {
		return n / 4
	}
	return n
}

// build makes the binary that the tests run: as it is shipped, or with the race detector.
func (b *bench) build() error {
	b.binary = filepath.Join(b.temp, "spokegate")
	args := []string{"build", "-o", b.binary}
	if b.race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/spokegate")...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/spokegate: %w\n%s", err, out)
	}
	return nil
}

func (b *bench) findEnvoy() {
	b.envoy = os.Getenv("SPOKEGATE_ENVOY")
	if b.envoy == "" {
		b.envoy = filepath.Join(b.root, ".tools", "envoy", "envoy")
	}
	if st, err := os.Stat(b.envoy); err != nil || !st.Mode().IsRegular() {
		b.envoy = ""
	}
}

// needEnvoy fails a test rather than skip it: without Envoy nothing of this is proved.
func (b *bench) needEnvoy(t testing.TB) {
	t.Helper()
	if b.envoy == "" {
		t.Fatal("Envoy is missing: run `make envoy`, or name its binary in SPOKEGATE_ENVOY")
	}
}

// use gives the installation of this name, and starts it for the first test that asks.
func (b *bench) use(t testing.TB, name string, options func() upOptions) *up {
	t.Helper()
	b.needEnvoy(t)
	b.mu.Lock()
	s := b.shared[name]
	if s == nil {
		s = &sharedUp{}
		b.shared[name] = s
	}
	b.mu.Unlock()
	s.once.Do(func() { s.up, s.err = startUp(name, options()) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.up
}

// close stops what tests shared, and says what was wrong with it.
func (b *bench) close() error {
	var errs []error
	for _, s := range b.shared {
		if s.up != nil {
			errs = append(errs, s.up.stop())
		}
	}
	return errors.Join(errs...)
}

// ports hands out free ports below the range that the kernel takes for outgoing connections, none twice.
var ports struct {
	sync.Mutex
	next int
}

func freePort() int {
	ports.Lock()
	defer ports.Unlock()
	if ports.next == 0 {
		ports.next = 20_000 + os.Getpid()%1000*10
	}
	for {
		ports.next++
		if ports.next >= 32_000 {
			ports.next = 20_000
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports.next)); err == nil {
			l.Close()
			return ports.next
		}
	}
}

func freeAddr() string { return fmt.Sprintf("127.0.0.1:%d", freePort()) }
