package envoy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/spokegate/spokegate/identity/mtls"
)

// Door says what a door's Envoy is to do. Fields at zero take the default named beside them.
type Door struct {
	// Name is Envoy's node id. Default "door".
	Name string
	// Listen is ip:port for clients, HTTP/1.1 and HTTP/2. Required.
	Listen string
	// TLSCert and TLSKey are the absolute paths of a PEM certificate chain and its key. Empty: plain HTTP. A renewed pair is
	// taken up when it is renamed into place.
	TLSCert, TLSKey string
	// WorkerTLS are the absolute paths of what Envoy shows to workers and holds them against; both sides need a certificate then.
	// Empty: plain HTTP. Renewed ones are taken up when they are renamed into place.
	WorkerTLS mtls.Files
	// Spoke is the spoke's name, as the URIs in workers' certificates have it. Needed with WorkerTLS.
	Spoke string
	// Admin is Envoy's admin: ip:port on loopback, or the absolute path of a Unix socket. Empty: none.
	Admin string
	// DoorSocket is the Unix socket of the door process: ext_authz, meter, access log and ADS. Required. AdmissionSocket stands
	// beside it.
	DoorSocket string
	// PickerSocket, when not empty, puts a full-duplex ext_proc picker into the chain, and workers are taken from the
	// metadata that it answers. Empty: the pick rides on the answer of ext_authz. With a picker, Envoy sends the body of an
	// HTTP/2 request that ends in trailers twice (envoy 45470): the worker must refuse what is not one JSON value.
	PickerSocket string
	// TrustedHops is how many proxies stand between clients and this Envoy whose x-forwarded-for is believed: the client is who
	// the farthest of them saw. 0: whoever connects is the client, whatever it says.
	TrustedHops int
	// DrainFile is the absolute path of a file with a number: at 1 Envoy leaves clients' connections once they have been idle for
	// a second, HTTP/2 ones by GOAWAY, and at 0 as ever. It must be there, and be replaced by renaming. Empty: none.
	DrainFile string
	// Concurrency is Envoy's worker threads. 0: one a core.
	Concurrency int
	// LogLevel is Envoy's own: trace, debug, info, warning, error. Default "warning".
	LogLevel string

	// Collector is host:port of an OpenTelemetry collector that takes spans by OTLP over gRPC, unencrypted. Empty: no tracing.
	Collector string
	// TracePercent of the requests are traced, from 0 to 100. A client has no say in which.
	TracePercent float64

	// BodyLimit is the largest request body in bytes; above it 413. Default 32 MiB.
	BodyLimit int64
	// HeadCheckAbove is the body size in bytes from which, or when it is not known, headers are checked before the body is
	// read. It bounds what a stranger can make Envoy buffer: with MaxStreams, 1.6 MiB a connection. Default 16 KiB.
	HeadCheckAbove int64
	// MaxConnections bounds clients' connections; more are closed at once. Default 10,000.
	MaxConnections int64
	// MaxStreams bounds the requests at one time on one HTTP/2 connection. Default 100.
	MaxStreams uint32
	// MaxHeap is the memory in bytes at which Envoy sheds: from 90 % it frees, from 95 % it refuses requests with 503,
	// from 98 % connections. Default 4 GiB.
	MaxHeap uint64
	// Retries is how many further workers of the list are tried when one refuses, resets or answers 503. Default 2.
	Retries uint32

	// CheckTimeout bounds one ext_authz call, sending the body included; above it 503. Default 5 s: 32 MiB take 0.3 s on two
	// idle cores, and many times that on busy ones.
	CheckTimeout time.Duration
	// HeadersTimeout bounds the arrival of a request's headers, RequestTimeout that of the whole request. Default 10 s and
	// 2 minutes (32 MiB at 2.2 Mbit/s).
	HeadersTimeout, RequestTimeout time.Duration
	// IdleTimeout ends a request on which nothing moved for so long: queueing and prefill must fit in. Default 10 minutes.
	// There is no limit on the whole of a response.
	IdleTimeout time.Duration
	// ConnectionIdle closes a client's connection without requests. Default 5 minutes.
	ConnectionIdle time.Duration
	// ConnectTimeout bounds connecting to a worker. Default 1 s.
	ConnectTimeout time.Duration
	// Keepalive is the interval of the pings on connections to the door process, and a tenth of the wait for each: a stopped one is
	// cut off within eleven times that. Default 1 s.
	Keepalive time.Duration
}

// withDefaults fills in what is zero.
func (d Door) withDefaults() Door {
	def(&d.Name, "door")
	def(&d.LogLevel, "warning")
	def(&d.BodyLimit, 32<<20)
	def(&d.HeadCheckAbove, 16<<10)
	def(&d.MaxConnections, 10_000)
	def(&d.MaxStreams, 100)
	def(&d.MaxHeap, 4<<30)
	def(&d.Retries, 2)
	def(&d.CheckTimeout, 5*time.Second)
	def(&d.HeadersTimeout, 10*time.Second)
	def(&d.RequestTimeout, 2*time.Minute)
	def(&d.IdleTimeout, 10*time.Minute)
	def(&d.ConnectionIdle, 5*time.Minute)
	def(&d.ConnectTimeout, time.Second)
	def(&d.Keepalive, time.Second)
	return d
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// leastBody is the least body limit. While a body is let in, Envoy holds what came until then, and reads on only once that is
// under half of the limit: a low one would make requests hang.
const leastBody = 1 << 20

// Validate says what is wrong with d, all of it. The other methods want a valid Door.
func (d Door) Validate() error {
	d = d.withDefaults()
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("envoy: "+format, args...))
		}
	}
	_, err := netip.ParseAddrPort(d.Listen)
	bad(err != nil, "listen address %q: want ip:port", d.Listen)
	bad(!adminOK(d.Admin), "admin address %q: want ip:port on loopback, or the path of a Unix socket: whoever reaches it rules Envoy", d.Admin)
	bad(!socketOK(d.DoorSocket), "door socket %q: want an absolute path of at most %d bytes", d.DoorSocket, maxSocketPath)
	bad(socketOK(d.DoorSocket) && !socketOK(d.AdmissionSocket()), "admission socket %q: want a path of at most %d bytes", d.AdmissionSocket(), maxSocketPath)
	bad(d.PickerSocket != "" && !socketOK(d.PickerSocket), "picker socket %q: want an absolute path of at most %d bytes", d.PickerSocket, maxSocketPath)
	bad(d.Collector != "" && !collectorOK(d.Collector), "collector %q: want host:port", d.Collector)
	bad(!(d.TracePercent >= 0 && d.TracePercent <= 100), "trace percent %v: want 0 to 100", d.TracePercent)
	bad(d.BodyLimit < leastBody || d.BodyLimit > 1<<30, "body limit %d: want 1 MiB to 1 GiB", d.BodyLimit)
	bad(d.BodyLimit >= leastBody && (d.HeadCheckAbove < 0 || d.HeadCheckAbove > d.BodyLimit), "head check above %d: want 1 to the body limit", d.HeadCheckAbove)
	bad(d.TrustedHops < 0 || d.TrustedHops > 16, "trusted hops %d: want 0 to 16", d.TrustedHops)
	bad(d.Concurrency < 0 || d.MaxConnections < 0, "concurrency and connections: want no negative number")
	bad(d.CheckTimeout > d.RequestTimeout || d.RequestTimeout > d.IdleTimeout, "timeouts: want check %v <= request %v <= idle %v: "+
		"a client that stalls must meet the request timeout first", d.CheckTimeout, d.RequestTimeout, d.IdleTimeout)
	if err := d.checkTLS(); err != nil {
		errs = append(errs, fmt.Errorf("envoy: %w", err))
	}
	if err := d.checkWorkerTLS(); err != nil {
		errs = append(errs, fmt.Errorf("envoy: towards workers: %w", err))
	}
	return errors.Join(errs...)
}

// AdmissionSocket is the Unix socket where the door process answers checks over HTTP/1.1, in DoorSocket's folder.
func (d Door) AdmissionSocket() string {
	return filepath.Join(filepath.Dir(d.DoorSocket), "admission.sock")
}

// maxSocketPath is what fits the kernel's sockaddr_un.
const maxSocketPath = 107

func socketOK(path string) bool { return strings.HasPrefix(path, "/") && len(path) <= maxSocketPath }

func adminOK(admin string) bool {
	if admin == "" || socketOK(admin) {
		return true
	}
	a, err := netip.ParseAddrPort(admin)
	return err == nil && a.Addr().IsLoopback()
}

// address turns ip:port or an absolute path into Envoy's form.
func address(s string) *corev3.Address {
	if strings.HasPrefix(s, "/") {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: s}}}
	}
	host, port, _ := net.SplitHostPort(s)
	n, _ := strconv.ParseUint(port, 10, 16)
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}
}

// Command is the argv that starts Envoy with the bootstrap at bootstrapPath. Envoy logs to stderr and obeys SIGTERM.
func Command(binary string, d Door, bootstrapPath string) []string {
	d = d.withDefaults()
	argv := []string{binary, "--config-path", bootstrapPath, "--disable-hot-restart", "--log-level", d.LogLevel}
	if d.Concurrency > 0 {
		argv = append(argv, "--concurrency", strconv.Itoa(d.Concurrency))
	}
	return argv
}
