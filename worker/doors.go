package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// dnsScheme begins the name of doors that come and go: dns:HOST:PORT.
	dnsScheme = "dns:"
	// lookEvery is how often such a name is looked up, half of it sooner or later.
	lookEvery = 4 * time.Second
	lookMost  = 10 * time.Second // how long an answer may take
	// MostDoors bounds the doors of one name, so that a wild answer does not make a worker join everybody.
	MostDoors = 128
)

// resolver finds the addresses of a host; a *net.Resolver.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// DoorHost is the host of a target, empty for a Unix socket; named says that the target is looked up again and again, and stands
// for as many doors as the host has addresses.
func DoorHost(target string) (host string, named bool, err error) {
	if onSocket(target) {
		return "", false, nil
	}
	address, named := strings.CutPrefix(target, dnsScheme)
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" || strings.Contains(host, "/") || named && (bad != nil || n == 0) {
		return "", named, fmt.Errorf("door %q: want host:port, unix:PATH, or dns:HOST:PORT for all addresses of a host", target)
	}
	return host, named, nil
}

// namedDoors keep the worker joined to each door that a name stands for. A door that the name has no more is not joined again when
// its stream ends; nothing else takes a worker from a door. What is wrong with DNS changes nothing.
type namedDoors struct {
	target     string // as it was said
	host, port string
	resolver   resolver
	every      time.Duration
	run        func(stopping context.Context, target string) // joins one, until its stream has ended and stopping is done
	doors      *doors
	log        *slog.Logger

	all   sync.WaitGroup
	mu    sync.Mutex
	leave map[string]context.CancelFunc // by target, of all that have not been left
}

// follow looks the name up until stopping, and returns when every door has been left.
func (n *namedDoors) follow(stopping context.Context) {
	defer n.all.Wait()
	said, wait := "", time.Duration(0)
	forget := n.doors.know(n.target) // in place of the doors that it stands for, until they are found
	defer forget()
	for sleep(stopping, wait) {
		targets, err := n.look(stopping)
		wait = n.every/2 + rand.N(n.every)
		if err != nil {
			if text := err.Error(); text != said && stopping.Err() == nil {
				n.log.Warn("doors cannot be looked up: those that are known stay", "host", n.host, "error", err)
				n.doors.tried(n.target, text)
				said = text
			}
			continue
		}
		said = ""
		n.take(stopping, targets)
		forget()
	}
}

// look finds the targets now, sorted. A host with addresses of both families has each door twice: its IPv4 ones count.
func (n *namedDoors) look(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookMost)
	defer cancel()
	found, err := n.resolver.LookupNetIP(ctx, "ip", n.host)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errors.New("it has no address")
	}
	var v4, v6 []string
	for _, a := range found {
		a = a.Unmap()
		if target := net.JoinHostPort(a.String(), n.port); a.Is4() {
			v4 = append(v4, target)
		} else {
			v6 = append(v6, target)
		}
	}
	targets := v4
	if len(v4) == 0 {
		targets = v6
	}
	slices.Sort(targets)
	return slices.Compact(targets), nil
}

// take joins what is new, and leaves what is not there any more.
func (n *namedDoors) take(stopping context.Context, targets []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for target, leave := range n.leave {
		if !slices.Contains(targets, target) {
			leave() // once its stream has ended
		}
	}
	for _, target := range targets {
		if n.leave[target] != nil {
			continue
		}
		if len(n.leave) >= MostDoors {
			n.log.Warn("too many doors: the others are not joined", "host", n.host, "found", len(targets), "most", MostDoors)
			return
		}
		n.start(stopping, target)
	}
}

// start joins a door, which is known until it has been left.
func (n *namedDoors) start(stopping context.Context, target string) {
	ctx, leave := context.WithCancel(stopping)
	n.leave[target] = leave
	n.doors.know(target)
	n.log.Info("door found", "host", n.host, "door", target)
	n.all.Go(func() {
		defer leave()
		n.run(ctx, target)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.leave, target)
		if stopping.Err() == nil {
			n.log.Info("door left", "host", n.host, "door", target)
		}
	})
}
