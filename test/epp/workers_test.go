package epp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
)

// workers are small HTTP servers that stand for engines. Each takes HTTP/1.1 and HTTP/2 without TLS, tells what it received, and
// answers as the request's path asks.
type workers struct {
	one, two, three *worker
	second          *worker // another port of one's address
	six             *worker // IPv6

	mu      sync.Mutex
	numbers int
	holds   map[string]chan struct{} // by the name of a request that is held until it is let go
}

func (ws *workers) all() []*worker { return []*worker{ws.one, ws.two, ws.three, ws.second, ws.six} }

func (ws *workers) stop() {
	for _, w := range ws.all() {
		w.close()
	}
}

type worker struct {
	addr    string
	handler http.Handler

	mu     sync.Mutex
	server *http.Server
}

// Where a picker that is not ours must believe its workers to be.
const fixedPort, fixedSecondPort = 18000, 18001 // docs/epp.md

func startWorkers() (*workers, error) {
	ws := &workers{holds: map[string]chan struct{}{}}
	port, second := fixedPort, fixedSecondPort
	if os.Getenv(pickerAddr) == "" {
		ports, err := freePorts(2, "127.0.0.11", "127.0.0.12", "127.0.0.13", "::1")
		if err != nil {
			return nil, err
		}
		port, second = ports[0], ports[1]
	}
	at := func(ip string, port int) *worker {
		w := &worker{addr: net.JoinHostPort(ip, strconv.Itoa(port))}
		w.handler = ws.serve(w.addr)
		return w
	}
	ws.one, ws.two, ws.three = at("127.0.0.11", port), at("127.0.0.12", port), at("127.0.0.13", port)
	ws.second, ws.six = at("127.0.0.11", second), at("::1", port)
	for _, w := range ws.all() {
		if err := w.open(); err != nil {
			return nil, err
		}
	}
	return ws, nil
}

func (w *worker) open() error {
	lis, err := net.Listen("tcp", w.addr)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server = &http.Server{Handler: w.handler, Protocols: new(http.Protocols)}
	w.server.Protocols.SetHTTP1(true)
	w.server.Protocols.SetUnencryptedHTTP2(true)
	go func(s *http.Server) { _ = s.Serve(lis) }(w.server)
	return nil
}

func (w *worker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.server.Close()
}

// dies until it is revived, which waits until the picker knows: who connects is refused.
func (w *worker) dies(t *testing.T) (revive func()) {
	t.Helper()
	w.close()
	return func() {
		until(t, "its address is free", func() bool { return w.open() == nil })
		until(t, "the worker that lives again is picked", func() bool {
			return call{subset: list(w.addr), method: "GET"}.do(t).status == http.StatusOK
		})
	}
}

// received is what a worker tells of a request.
type received struct {
	Worker, Proto, Method, Path string
	Header, Trailer             http.Header
	Length                      int
	Sum                         string // SHA-256 of the body
	ContentLength               int64  // of the header; -1: none
}

// Paths that are answered in a way of their own.
const (
	pathLarge  = "/large"   // size bytes
	pathHeld   = "/held"    // a first piece, and the end when the test lets go of the name
	pathStrict = "/grpc"    // as a gRPC server answers a unary call
	pathChat   = "/v1/chat" // JSON, and trailers
)

func (ws *workers) serve(addr string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { // for pickers that look at load
		fmt.Fprint(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 0\n"+
			"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"m\"} 0\n"+
			"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name=\"m\"} 0\n")
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc(pathLarge, func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		_, _ = io.Copy(io.Discard, r.Body)
		piece := pattern(64 << 10)
		for size > 0 {
			n, err := w.Write(piece[:min(size, len(piece))])
			if err != nil {
				return
			}
			size -= n
		}
	})
	mux.HandleFunc(pathHeld, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Worker", addr)
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-ws.hold(r.URL.Query().Get("name")):
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc(pathStrict, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("X-Worker", addr)
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		_, _ = w.Write(body)
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set("Grpc-Message", r.Header.Get("Te"))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		if err != nil && !errors.Is(err, io.EOF) {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Worker", addr)
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		if r.URL.Path == pathChat {
			w.Header().Set("Trailer", "X-After")
			defer w.Header().Set("X-After", "said")
		}
		_ = json.NewEncoder(w).Encode(received{Worker: addr, Proto: r.Proto, Method: r.Method, Path: r.URL.Path, Header: r.Header, Trailer: r.Trailer,
			Length: int(n), Sum: hex.EncodeToString(sum.Sum(nil)), ContentLength: r.ContentLength})
	})
	return mux
}

// newNumber is of no request before.
func (ws *workers) newNumber() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.numbers++
	return ws.numbers
}

// hold is closed when the test lets go of this name.
func (ws *workers) hold(name string) chan struct{} {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.holds[name] == nil {
		ws.holds[name] = make(chan struct{})
	}
	return ws.holds[name]
}

// pattern is bytes of which a lost or doubled piece is seen.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdefghijklmnopqrstuvwxyz!"[(i+i/37+i/4099)%37]
	}
	return b
}

// freePorts are free at all of these addresses.
func freePorts(n int, ips ...string) ([]int, error) {
	var ports []int
	for port := 12_000 + os.Getpid()%1000*6; len(ports) < n; port++ {
		if port >= 20_000 {
			return nil, errors.New("no ports are free")
		}
		free := true
		for _, ip := range ips {
			lis, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
			if err != nil {
				free = false
				break
			}
			lis.Close()
		}
		if free {
			ports = append(ports, port)
		}
	}
	return ports, nil
}
