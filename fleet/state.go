package fleet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

// State says what a worker can be asked to do. The zero value is unknown and never served.
type State uint8

const (
	Unknown State = iota
	Starting
	Ready
	Draining
	Stopped
	Failed
)

var stateNames = [...]string{"unknown", "starting", "ready", "draining", "stopped", "failed"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Worker is one engine process behind its shim, as the fleet knows it.
type Worker struct {
	Name      string // unique in the spoke: 1 to 64 of [a-z0-9.-]
	Endpoint  string // the endpoint of the policy that it serves
	Addr      string // ip:port where Envoy reaches the shim; IPv6 in brackets
	Engine    string // sim, vllm, sglang, trtllm, attached
	Epoch     string // one run of the engine
	BlockSize uint32 // tokens a KV block; 0: not known
	Blocks    uint64 // KV blocks of the device; 0: not known
	State     State

	Ranks uint32 // data-parallel ranks, each with as many blocks; 0 or 1: one
	Role  string // RolePrefill, RoleDecode, or empty: it does both

	BlocksAddr string    // ip:port where pickers follow its blocks; empty: it announces none
	Version    string    // of the shim; empty: not told
	ByURI      bool      // its certificate names it by a URI, and not by a DNS name
	Joined     time.Time // when this door took it in

	told *atomic.Pointer[Status]
}

// Roles of workers.
const (
	RolePrefill = "prefill" // computes prompts for others, and answers nobody
	RoleDecode  = "decode"  // answers; others may compute its prompts
)

// MaxRanks bounds the data-parallel ranks of one worker.
const MaxRanks = 1024

// Status is what the worker said last: also of a worker in a view that is older. Zero: it has not said anything yet.
func (w Worker) Status() Status {
	if w.told != nil {
		if s := w.told.Load(); s != nil {
			return *s
		}
	}
	return Status{}
}

// Status is what a worker says of itself with each beat, beside its state.
type Status struct {
	Reason   string   // of its state, for people
	Running  uint32   // requests in the shim
	Degraded []string // "CAUSE: DETAIL", each what makes it worse than it seems; nobody may change it
	Load     *Load    // nil: the engine says nothing
	Ranks    []Load   // of each data-parallel rank; empty: it has one, or does not tell them apart
	At       time.Time
}

// Load is what an engine says of itself.
type Load struct {
	Running, Waiting  uint32 // requests
	CacheUsedPermille uint32 // of the device's KV blocks
	Preemptions       uint64 // since the engine started
}

// Why a worker may not join.
var (
	ErrDuplicate = errors.New("taken by a worker that is alive")
	ErrInvalid   = errors.New("invalid worker")
	ErrFull      = fmt.Errorf("the fleet is full: %d workers", MaxWorkers)
)

const (
	maxName  = 64
	maxField = 253 // endpoint, engine, epoch and version, in bytes
)

// valid says what is wrong with w, or returns it with its addresses in canonical form.
func valid(w Worker) (Worker, error) {
	if !validName(w.Name) {
		return w, fmt.Errorf("%w: name %q: want 1 to %d of a-z, 0-9, '.', '-'", ErrInvalid, cut(w.Name), maxName)
	}
	for _, f := range []struct{ name, value string }{{"endpoint", w.Endpoint}, {"engine", w.Engine}, {"epoch", w.Epoch}, {"version", w.Version}} {
		if len(f.value) > maxField || strings.ContainsFunc(f.value, unprintable) {
			return w, fmt.Errorf("%w: %s %q: want at most %d printable bytes without blanks", ErrInvalid, f.name, cut(f.value), maxField)
		}
	}
	switch {
	case w.Endpoint == "":
		return w, fmt.Errorf("%w: endpoint is empty", ErrInvalid)
	case w.Role != "" && w.Role != RolePrefill && w.Role != RoleDecode:
		return w, fmt.Errorf("%w: role %q: want %s, %s or none", ErrInvalid, cut(w.Role), RolePrefill, RoleDecode)
	case w.Ranks > MaxRanks:
		return w, fmt.Errorf("%w: %d data-parallel ranks: want at most %d", ErrInvalid, w.Ranks, MaxRanks)
	}
	var err error
	if w.Addr, err = Canonical(w.Addr); err == nil && w.BlocksAddr != "" {
		w.BlocksAddr, err = Canonical(w.BlocksAddr)
	}
	return w, err
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Canonical parses ip:port into the one form in which Envoy, the picker and the access log write an address. The error is an
// ErrInvalid.
func Canonical(addr string) (string, error) {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return "", fmt.Errorf("%w: address %q: want ip:port, IPv6 in brackets", ErrInvalid, cut(addr))
	}
	ip := a.Addr().Unmap()
	if a.Port() == 0 || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip == broadcast {
		return "", fmt.Errorf("%w: address %q: want one host that others reach, and a port", ErrInvalid, cut(addr))
	}
	return netip.AddrPortFrom(ip, a.Port()).String(), nil
}

func validName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-')
	})
}

func unprintable(r rune) bool { return r <= ' ' || r > '~' }

// cut keeps a stranger's text short in messages.
func cut(s string) string {
	if len(s) > maxName {
		return s[:maxName] + "…"
	}
	return s
}
