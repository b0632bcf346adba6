package router

import (
	"net/netip"
	"strings"
)

// place is a worker's address, taken apart for comparison.
type place struct {
	addr string         // as given, lower case
	host string         // of a name and port
	ip   netip.AddrPort // of an ip:port
}

func placeOf(addr string) place {
	p := place{addr: strings.ToLower(addr)}
	if ip, err := netip.ParseAddrPort(addr); err == nil {
		p.ip = netip.AddrPortFrom(ip.Addr().Unmap(), ip.Port())
	} else if i := strings.LastIndexByte(p.addr, ':'); i > 0 {
		p.host = p.addr[:i]
	}
	return p
}

// subset is a set of workers given by ip:port, ip alone, or, for workers with names, by name. nil is all.
type subset struct {
	ports map[netip.AddrPort]bool
	ips   map[netip.Addr]bool
	names map[string]bool
}

// parseSubset never fails: an entry that is no address matches no ip, at most a name.
func parseSubset(entries []string) *subset {
	if entries == nil {
		return nil
	}
	s := &subset{map[netip.AddrPort]bool{}, map[netip.Addr]bool{}, map[string]bool{}}
	for _, entry := range entries {
		for e := range strings.SplitSeq(entry, ",") {
			if e = strings.TrimSpace(e); e != "" {
				s.add(e)
			}
		}
	}
	return s
}

func (s *subset) add(e string) {
	if ip, err := netip.ParseAddrPort(e); err == nil {
		s.ports[netip.AddrPortFrom(ip.Addr().Unmap(), ip.Port())] = true
		return
	}
	bare := e
	if strings.HasPrefix(e, "[") && strings.HasSuffix(e, "]") {
		bare = e[1 : len(e)-1]
	}
	if ip, err := netip.ParseAddr(bare); err == nil {
		s.ips[ip.Unmap()] = true
		return
	}
	s.names[strings.ToLower(e)] = true
}

func (s *subset) has(p place) bool {
	if s == nil {
		return true
	}
	if p.ip.IsValid() {
		return s.ports[p.ip] || s.ips[p.ip.Addr()]
	}
	return s.names[p.addr] || p.host != "" && s.names[p.host]
}
