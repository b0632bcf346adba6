package api

import (
	"net/netip"
	"sync"
	"time"
)

// A source may show guessesFree wrong tokens in guessWindow, and is then told to come later. At most guessSources are
// remembered.
const (
	guessesFree  = 10
	guessWindow  = time.Minute
	guessSources = 10_000
)

// guesses counts the wrong tokens of each source. Right ones pass whatever others at the same address do: a guesser behind
// the same proxy locks nobody out.
type guesses struct {
	mu    sync.Mutex
	until map[netip.Prefix]time.Time // when a source's account is clean (GCRA)
}

// count takes note of a wrong token, and says how long its source has to wait; 0: it may try again at once.
func (g *guesses) count(source netip.Prefix, now time.Time) time.Duration {
	const share = guessWindow / guessesFree
	g.mu.Lock()
	defer g.mu.Unlock()
	g.makeRoom(now)
	until := g.until[source]
	if until.Before(now) {
		until = now
	}
	until = until.Add(share)
	if over := until.Sub(now.Add(guessWindow)); over > 0 {
		return over
	}
	g.until[source] = until
	return 0
}

// makeRoom forgets sources whose account is clean, and if that is not enough, any.
func (g *guesses) makeRoom(now time.Time) {
	if len(g.until) < guessSources {
		return
	}
	for s, until := range g.until {
		if !until.After(now) {
			delete(g.until, s)
		}
	}
	for s := range g.until {
		if len(g.until) < guessSources {
			return
		}
		delete(g.until, s)
	}
}

// sourceOf is what is counted as one: an address of IPv4, and of IPv6 what one customer of a network usually has.
func sourceOf(remote string) netip.Prefix {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // nobody knows whose: one source for all of them
	}
	ip, bits := a.Addr().Unmap(), 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // the length fits
	return p
}
