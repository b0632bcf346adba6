package kv

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// endpoint is where an engine publishes, as a network address.
type endpoint struct {
	network, address string
	// ours says that we listen, and the engine connects.
	ours bool
}

// parseEndpoint reads an endpoint as an engine was given it, for one of its ranks: each has a port of its own. An engine
// binds an address with "*" or "::", and ipc; it connects to every other, so that we must listen there. host stands for "*".
func parseEndpoint(text, host string, rank int) (endpoint, error) {
	if path, is := strings.CutPrefix(text, "ipc://"); is {
		if path == "" || rank > 0 {
			return endpoint{}, fmt.Errorf("%q: ipc has a path, and is for one rank alone", text)
		}
		return endpoint{network: "unix", address: path}, nil
	}
	rest, is := strings.CutPrefix(text, "tcp://")
	if !is {
		return endpoint{}, fmt.Errorf("%q: tcp://HOST:PORT or ipc://PATH expected", text)
	}
	at := strings.LastIndexByte(rest, ':')
	if at < 1 {
		return endpoint{}, fmt.Errorf("%q has no host, or no port", text)
	}
	port, err := strconv.ParseUint(rest[at+1:], 10, 16)
	if err != nil || port == 0 || port+uint64(rank) > 65535 {
		return endpoint{}, fmt.Errorf("%q: a port is expected, the same at each start", text)
	}
	name := strings.Trim(rest[:at], "[]")
	ours := name != "*" && !strings.Contains(rest, "::")
	if name == "*" || name == "::" {
		name = cmp.Or(host, "127.0.0.1")
	}
	return endpoint{"tcp", net.JoinHostPort(name, strconv.Itoa(int(port)+rank)), ours}, nil
}

// replayEndpoint is one that the engine always binds.
func replayEndpoint(text, host string, rank int) (endpoint, error) {
	e, err := parseEndpoint(text, host, rank)
	e.ours = false
	return e, err
}

// isPrivate says whether no other host reaches it.
func (e endpoint) isPrivate() bool {
	if e.network == "unix" {
		return true
	}
	host, _, _ := net.SplitHostPort(e.address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (e endpoint) String() string { return e.network + ":" + e.address }
