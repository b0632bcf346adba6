package router

import (
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/router/blocktree"
)

// announce stores a text as blocks of 8 bytes, with keys from 1.
func announce(f *Feed, text []byte, tier blocktree.Tier) (lost int) {
	var blocks []blocktree.Block
	for key := uint32(1); len(text) >= 8; key++ {
		blocks = append(blocks, blocktree.Block{Key: key, Parent: key - 1, Length: 8, Hash: xxh3.HashSeed(text[:8], 1), Tier: tier})
		text = text[8:]
	}
	return f.Stored(blocks)
}

func (p *pool) ask(ask Ask) Choice {
	p.t.Helper()
	c, err := p.Pick(p.now, ask)
	if err != nil {
		p.t.Fatal(err)
	}
	c.Booking.Release()
	return c
}

func TestAnnouncedBlocksDecide(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b, c)
	prompt := []byte(text(10, "p"))
	ask := Ask{Prompt: []byte("as we write it"), Text: prompt}
	onB, onC := p.Announced(b, 0, 1), p.Announced(c, 0, 1)
	announce(onB, prompt[:8*8], blocktree.Device)
	announce(onC, prompt, blocktree.Disk)
	choice := p.ask(ask)
	if choice.Addrs[0] != b || choice.Overlap != 8 || !choice.Announced || choice.Held.Blocks != 8 || choice.Blocks != 10 {
		t.Errorf("%+v, want b with 8 of 10 announced", choice)
	}
	if !strings.Contains(choice.Explain(), b+": overlap 8, prefill 2, decode 0, requests 0, cost 2, announced 8 blocks of 64 bytes (chosen)\n") ||
		!strings.Contains(choice.Explain(), c+": overlap 2, prefill 8, decode 0, requests 0, cost 8, announced 10 blocks of 80 bytes\n") {
		t.Errorf("disk is worth a quarter:\n%s", choice.Explain())
	}
	announce(onC, prompt, blocktree.Device) // the same, in a better tier too
	if choice := p.ask(ask); choice.Addrs[0] != c || choice.Overlap != 10 {
		t.Errorf("%+v, want c with 10", choice)
	}
	onC.Removed(blocktree.Device, 1)
	onC.Removed(blocktree.Disk, 1)
	p.now = p.now.Add(burst) // what was just sent is forgotten
	if choice := p.ask(ask); choice.Addrs[0] != b || choice.Overlap != 8 {
		t.Errorf("%+v, want b: c has lost the first block", choice)
	}
	onB.Cleared()
	onC.Close()
	p.now = p.now.Add(burst)
	if choice := p.ask(ask); choice.Overlap != 0 {
		t.Errorf("%+v, want nothing held", choice)
	}
	if blocks, held := p.Size(); blocks != 0 || held != 0 {
		t.Errorf("%d blocks, %d held are left", blocks, held)
	}
}

// TestWhatWasSentCountsUntilTheWordOfIt: a burst of equal prompts knows of itself before any block is announced, and for
// a prompt whose text is not known the guess lasts.
func TestWhatWasSentCountsUntilTheWordOfIt(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b)
	p.Announced(a, 0, 1)
	p.Announced(b, 0, 1)
	prompt := []byte(text(10, "p"))
	first := p.ask(Ask{Prompt: prompt, Text: prompt}).Addrs[0]
	if c := p.ask(Ask{Prompt: prompt, Text: prompt}); c.Addrs[0] != first || c.Overlap != 10 || c.Held.Blocks != 0 {
		t.Errorf("%+v, want 10 guessed at %s", c, first)
	}
	p.now = p.now.Add(burst)
	if c := p.ask(Ask{Prompt: prompt, Text: prompt}); c.Overlap != 0 {
		t.Errorf("overlap %d, but the engine has not announced it", c.Overlap)
	}
	image := []byte(text(6, "i"))
	p.ask(Ask{Prompt: image})
	p.now = p.now.Add(burst)
	if c := p.ask(Ask{Prompt: image}); c.Overlap != 6 || c.Announced {
		t.Errorf("%+v, want 6 guessed", c)
	}
}

func TestFeedsComeAndGo(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, b)
	prompt := []byte(text(5, "p"))
	ask := Ask{Prompt: prompt, Text: prompt}
	early := p.Announced(a, 0, 1) // of a worker that is not there yet
	announce(early, prompt, blocktree.Device)
	p.set(a, b)
	if c := p.ask(ask); c.Addrs[0] != a || c.Overlap != 5 {
		t.Errorf("%+v, want what it announced before", c)
	}
	again := p.Announced(a, 0, 1)
	if lost := announce(early, prompt, blocktree.Device); lost != 0 {
		t.Errorf("a closed feed lost %d", lost)
	}
	early.Close()
	p.now = p.now.Add(burst)
	if c := p.ask(ask); c.Held.Blocks != 0 {
		t.Errorf("%+v, want nothing: the new feed began anew", c)
	}
	if lost := again.Stored([]blocktree.Block{{Key: 2, Parent: 1, Length: 8}, {Key: 1 << 30}}); lost != 2 {
		t.Errorf("lost %d, want 2: no parent, and no such key", lost)
	}
	other := p.Announced(b, 0, 2) // another seed: nothing of before can be compared
	announce(again, prompt, blocktree.Device)
	if blocks, _ := p.Size(); blocks != 0 {
		t.Errorf("%d blocks by a void feed", blocks)
	}
	again.Close()
	other.Close()
	other.Close()
	if c := p.ask(ask); c.Announced {
		t.Errorf("%+v, want a guess: no feed is left", c)
	}
}

// TestFeedsInParallel is for the race detector.
func TestFeedsInParallel(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b)
	prompt := []byte(text(50, "p"))
	var all sync.WaitGroup
	for _, addr := range []string{a, b} {
		all.Go(func() {
			for range 50 {
				f := p.Announced(addr, 0, 1)
				announce(f, prompt, blocktree.Device)
				f.Removed(blocktree.Device, 3, 49)
				f.Close()
			}
		})
		all.Go(func() {
			for range 200 {
				c, err := p.Pick(p.now, Ask{Prompt: prompt, Text: prompt})
				if err != nil || c.Held.Blocks > 50 {
					t.Error(c, err)
				}
				c.Booking.Release()
			}
		})
	}
	all.Wait()
	if blocks, held := p.Size(); blocks != 0 || held != 0 {
		t.Errorf("%d blocks, %d held are left", blocks, held)
	}
}

// TestAPromptWhoseEndHasNoText is known exactly as far as its text goes, and guessed from there on; what was announced of it is
// held against no engine's report.
func TestAPromptWhoseEndHasNoText(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b)
	begin, all := []byte(text(4, "p")), []byte(text(10, "q"))
	onB := p.Announced(b, 0, 1)
	announce(onB, begin, blocktree.Device)
	ask := Ask{Prompt: all, Text: begin, Begins: true}
	c := p.ask(ask)
	if c.Addrs[0] != b || c.Overlap != 4 || c.Guessed != 0 || c.Blocks != 10 || c.Announced || c.Held.Blocks != 4 {
		t.Errorf("%+v, want b with 4 of 10 announced", c)
	}
	p.now = p.now.Add(2 * burst) // nobody announces what follows: it is remembered as long as a guess
	if c := p.ask(ask); c.Addrs[0] != b || c.Overlap != 10 || c.Guessed != 10 {
		t.Errorf("%+v, want b with all of it by what was sent", c)
	}
}
