package fleet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
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
}

// Why a worker may not join.
var (
	ErrDuplicate = errors.New("taken by a worker that is alive")
	ErrInvalid   = errors.New("invalid worker")
	ErrFull      = fmt.Errorf("the fleet is full: %d workers", MaxWorkers)
)

const (
	maxName  = 64
	maxField = 253 // endpoint, engine and epoch, in bytes
)

// valid says what is wrong with w, or returns its address in canonical form.
func valid(w Worker) (addr string, err error) {
	if !validName(w.Name) {
		return "", fmt.Errorf("%w: name %q: want 1 to %d of a-z, 0-9, '.', '-'", ErrInvalid, cut(w.Name), maxName)
	}
	for _, f := range []struct{ name, value string }{{"endpoint", w.Endpoint}, {"engine", w.Engine}, {"epoch", w.Epoch}} {
		if len(f.value) > maxField || strings.ContainsFunc(f.value, unprintable) {
			return "", fmt.Errorf("%w: %s %q: want at most %d printable bytes without blanks", ErrInvalid, f.name, cut(f.value), maxField)
		}
	}
	if w.Endpoint == "" {
		return "", fmt.Errorf("%w: endpoint is empty", ErrInvalid)
	}
	return canonical(w.Addr)
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// canonical parses ip:port into the one form in which Envoy, the picker and the access log write an address.
func canonical(addr string) (string, error) {
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
