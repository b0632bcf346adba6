package extauthz

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// A source may send guessesFree wrong keys in guessWindow. The answer to more is held back for guessHold; of such answers at
// most guessesHeld wait at one time, for all sources, and beyond them the source is told to come later. At most guessSources
// are remembered.
const (
	guessesFree  = 10
	guessWindow  = time.Minute
	guessHold    = time.Second
	guessesHeld  = 64
	guessSources = 10_000
)

// guesses counts the wrong credentials of each source, and of the right ones nothing: whoever shares an address with a guesser
// is served as ever. It is apart from all limits.
type guesses struct {
	wait func(context.Context, time.Duration) // for guessHold

	mu sync.Mutex
	// until is when a source's account is clean; each wrong credential moves it on by a share of the window (GCRA).
	until map[netip.Prefix]time.Time
	swept time.Time
	held  int
}

func newGuesses() *guesses {
	return &guesses{wait: pause, until: map[netip.Prefix]time.Time{}}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// count takes note of a wrong credential. Where the source had sent its share, it returns how long until it may send another
// one unslowed; else 0.
func (g *guesses) count(source netip.Prefix, now time.Time) (retry time.Duration) {
	const share = guessWindow / guessesFree
	g.mu.Lock()
	defer g.mu.Unlock()
	until, known := g.until[source]
	if !known {
		g.makeRoom(now)
	}
	if until.Before(now) {
		until = now
	}
	until = until.Add(share)
	if over := until.Sub(now.Add(guessWindow)); over > 0 { // and no longer for more of them: a flood is over when it ends
		return over
	}
	g.until[source] = until
	return 0
}

// makeRoom forgets the sources whose account is clean, and if that is not enough, any.
func (g *guesses) makeRoom(now time.Time) {
	if len(g.until) < guessSources {
		return
	}
	if now.Sub(g.swept) >= guessWindow/guessesFree { // not each time, for it looks at all
		g.swept = now
		for s, until := range g.until {
			if !until.After(now) {
				delete(g.until, s)
			}
		}
	}
	for s := range g.until {
		if len(g.until) < guessSources {
			return
		}
		delete(g.until, s)
	}
}

// enter takes one of the places for answers that are held back. False: all are taken. Whoever enters must hold.
func (g *guesses) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held >= guessesHeld {
		return false
	}
	g.held++
	return true
}

// hold keeps the caller waiting, and gives its place back.
func (g *guesses) hold(ctx context.Context) {
	g.wait(ctx, guessHold)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held--
}

// sourceOf is what is counted as one: an address of IPv4, and of IPv6 what one customer of a network usually has.
func sourceOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, err := a.Prefix(bits)
	if err != nil { // an address that nobody knows: one source for all of them
		return netip.Prefix{}
	}
	return p
}
