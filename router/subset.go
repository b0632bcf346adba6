package router

import (
	"net/netip"
	"strings"
)

// placeOf is a worker's address in the one form that is compared. The zero value, of what is no ip:port, is in no subset.
func placeOf(addr string) netip.AddrPort {
	ip, _ := netip.ParseAddrPort(addr)
	return netip.AddrPortFrom(ip.Addr().Unmap(), ip.Port())
}

// subset is a set of workers given by ip:port or ip alone. nil is all.
type subset struct {
	ports map[netip.AddrPort]bool
	ips   map[netip.Addr]bool
}

// parseSubset never fails: an entry that is no address matches nothing.
func parseSubset(entries []string) *subset {
	if entries == nil {
		return nil
	}
	s := &subset{map[netip.AddrPort]bool{}, map[netip.Addr]bool{}}
	for _, entry := range entries {
		for e := range strings.SplitSeq(entry, ",") {
			s.add(strings.TrimSpace(e))
		}
	}
	return s
}

func (s *subset) add(e string) {
	if at := placeOf(e); at.IsValid() {
		s.ports[at] = true
		return
	}
	if strings.HasPrefix(e, "[") && strings.HasSuffix(e, "]") {
		e = e[1 : len(e)-1]
	}
	if ip, err := netip.ParseAddr(e); err == nil {
		s.ips[ip.Unmap()] = true
	}
}

func (s *subset) has(at netip.AddrPort) bool {
	return s == nil || s.ports[at] || s.ips[at.Addr()]
}
