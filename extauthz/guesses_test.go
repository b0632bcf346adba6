package extauthz

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func source(n uint32) netip.Prefix {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return sourceOf(netip.AddrFrom4(b))
}

// TestGuessesAgainstTheListOfAll: of a source's guesses, those that are not slowed are at most guessesFree and one for each
// share of the window that has passed, over every stretch of time; and no fewer.
func TestGuessesAgainstTheListOfAll(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		g, now := newGuesses(), time.Unix(1_700_000_000, 0)
		level, last := 0.0, now // a bucket that leaks, in guesses
		for range 500 {
			now = now.Add(time.Duration(r.ExpFloat64() * float64(guessWindow/guessesFree)))
			level = max(0, level-float64(now.Sub(last))*guessesFree/float64(guessWindow))
			last = now
			retry := g.count(source(1), now)
			switch fits := level+1 <= guessesFree; {
			case fits != (retry == 0):
				t.Fatalf("%.4f guesses before: retry after %v", level, retry)
			case fits:
				level++
			case retry > guessWindow/guessesFree:
				t.Fatalf("retry after %v", retry)
			}
		}
	}
}

func TestSourcesAreBounded(t *testing.T) {
	g, now := newGuesses(), time.Unix(1_700_000_000, 0)
	for n := range uint32(3 * guessSources) {
		g.count(source(n), now)
		if len(g.until) > guessSources {
			t.Fatalf("%d sources", len(g.until))
		}
	}
	// Those whose account is clean go first.
	for range guessesFree {
		g.count(source(1<<31), now.Add(guessWindow))
	}
	g.count(source(1<<31+1), now.Add(guessWindow))
	if len(g.until) != 2 || g.count(source(1<<31), now.Add(guessWindow)) == 0 {
		t.Errorf("%d sources are left", len(g.until))
	}
}

func TestSourceOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7":            "192.0.2.7/32",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
	} {
		if got := sourceOf(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s is counted as %s", addr, got)
		}
	}
	if sourceOf(netip.Addr{}) != (netip.Prefix{}) {
		t.Error("no address is not the source of its own kind")
	}
}

// TestAnswersThatAreHeldBack: each for a second, or until Envoy gives up, and a bounded number of them.
func TestAnswersThatAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, began := newGuesses(), time.Now()
		gone, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for n := range guessesHeld {
			if !g.enter() {
				t.Fatalf("no place for answer %d", n)
			}
			all.Go(func() {
				if n == 0 {
					g.hold(gone)
					return
				}
				g.hold(t.Context())
				if held := time.Since(began); held != guessHold {
					t.Errorf("held for %v", held)
				}
			})
		}
		if g.enter() {
			t.Error("there is a place too many")
		}
		cancel()
		synctest.Wait()
		if !g.enter() || g.enter() {
			t.Error("who left does not leave exactly its place")
		}
		all.Go(func() { g.hold(t.Context()) })
		all.Wait()
		if g.held != 0 {
			t.Errorf("%d places are taken", g.held)
		}
	})
}

// TestTooManyAreHeld: the one that finds no place is refused at once, and told when to come back.
func TestTooManyAreHeld(t *testing.T) { both(t, testTooManyAreHeld) }

func testTooManyAreHeld(t *testing.T) {
	g := newGate(t)
	g.guesses.held = guessesHeld
	for range guessesFree {
		resp, err := g.ask(t, t.Context(), set("authorization", "Bearer wrong"))
		if err != nil {
			t.Fatal(err)
		}
		denial(t, resp, 401, "invalid_api_key")
	}
	resp, err := g.ask(t, t.Context(), set("authorization", "Bearer wrong"))
	if err != nil {
		t.Fatal(err)
	}
	denial(t, resp, 429, "too_many_failed_keys")
	if resp, err := g.ask(t, t.Context()); err != nil || resp.GetOkResponse() == nil {
		t.Errorf("a right key from there: %v, %v", resp, err)
	}
}
