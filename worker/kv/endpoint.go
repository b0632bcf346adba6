package kv

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// ranksMost bounds the data-parallel ranks of one engine.
const ranksMost = 64

// Feed is where one data-parallel rank of an engine publishes.
type Feed struct {
	// Events is the address of its publisher, and Replay that of its replay socket: ipc://PATH or tcp://HOST:PORT. Replay empty:
	// it has none, and each gap or lost connection costs what is known.
	Events, Replay string
	// Listen says that we are to listen at Events, and the engine connects. At Replay it always listens.
	Listen bool
}

// Feeds reads endpoints as an engine was told them in its kv-events-config: it binds tcp addresses with "*" or "::" and all of
// ipc, and connects to the others; each rank has a port of its own. host stands for "*"; empty: 127.0.0.1. replay may be empty.
func Feeds(events, replay, host string, ranks int) ([]Feed, error) {
	if ranks < 1 || ranks > ranksMost {
		return nil, fmt.Errorf("%d data-parallel ranks: 1 to %d expected", ranks, ranksMost)
	}
	feeds := make([]Feed, ranks)
	for rank := range feeds {
		f := &feeds[rank]
		f.Listen = strings.HasPrefix(events, "tcp://") && !strings.Contains(events, "*") && !strings.Contains(events, "::")
		var err error
		if f.Events, err = ofRank(events, host, rank); err != nil {
			return nil, err
		}
		if replay == "" {
			continue
		}
		if f.Replay, err = ofRank(replay, host, rank); err != nil {
			return nil, err
		}
	}
	return feeds, nil
}

// ofRank is the endpoint of one rank.
func ofRank(text, host string, rank int) (string, error) {
	if rank > 0 && strings.HasPrefix(text, "ipc://") {
		return "", fmt.Errorf("%q: ipc is for one rank alone", text)
	}
	e, err := parseEndpoint(text)
	if err != nil || e.network == "unix" {
		return text, err
	}
	name, port, err := net.SplitHostPort(e.address)
	if err != nil {
		return "", fmt.Errorf("%q: %w", text, err)
	}
	n, _ := strconv.Atoi(port)
	if n+rank > 65535 {
		return "", fmt.Errorf("%q: %d ranks need ports above 65535", text, rank+1)
	}
	if name == "*" || name == "::" {
		name = cmp.Or(host, "127.0.0.1")
	}
	return "tcp://" + net.JoinHostPort(name, strconv.Itoa(n+rank)), nil
}

// endpoint is a network address.
type endpoint struct{ network, address string }

func parseEndpoint(text string) (endpoint, error) {
	if path, is := strings.CutPrefix(text, "ipc://"); is && path != "" {
		return endpoint{"unix", path}, nil
	}
	address, is := strings.CutPrefix(text, "tcp://")
	if !is {
		return endpoint{}, fmt.Errorf("%q: tcp://HOST:PORT or ipc://PATH expected", text)
	}
	at := strings.LastIndexByte(address, ':')
	if at < 1 {
		return endpoint{}, fmt.Errorf("%q has no host, or no port", text)
	}
	if n, err := strconv.ParseUint(address[at+1:], 10, 16); err != nil || n == 0 {
		return endpoint{}, fmt.Errorf("%q: a port is expected, the same at each start", text)
	}
	return endpoint{"tcp", net.JoinHostPort(strings.Trim(address[:at], "[]"), address[at+1:])}, nil
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
