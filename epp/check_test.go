package epp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/router"
	"github.com/spokegate/spokegate/router/blocktree"
)

const blockTokens = 4

// sized is the profile of a worker with blocks of 4 tokens.
func sized(template string) *workerv1.FollowResponse {
	p := profile(workerv1.Profile_MODE_INDEXED, template)
	p.GetProfile().BlockSize = blockTokens
	return p
}

// answered picks for a prompt and has its engine report cached tokens; negative: it reports none.
func (f *following) answered(prompt string, cached int64) router.Choice {
	f.Helper()
	req, body := chat(f.T, prompt)
	c, err := f.Pick(f.T.Context(), time.Now(), "large", router.Ask{}, req, body)
	if err != nil {
		f.Fatal(err)
	}
	c.Booking.FirstByte()
	c.Booking.Release()
	if cached < 0 {
		c.Booking.Served(nil)
	} else {
		c.Booking.Served(&cached)
	}
	return c
}

const void = "nothing that it announces is of the prompts that its engine has in its cache"

// TestSilentZeroOverlapIsNoticed: whatever makes an announcement useless (another seed, template, or vocabulary), the worker's
// engine reports cached tokens where nothing was announced, and soon it is not believed.
func TestSilentZeroOverlapIsNoticed(t *testing.T) {
	const a = "10.0.0.1:1"
	other := pieces(7)
	for _, b := range other {
		b.Hash += 1 << 20 // as of other bytes
	}
	for name, c := range map[string]struct {
		template string
		blocks   []*workerv1.Block
	}{
		"seed":       {template, pieces(8)},
		"template":   {"{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}", pieces(7)},
		"vocabulary": {template, other},
		"nothing":    {template, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := follow(t, a)
			f.asked(0)
			f.tell(0, sized(c.template), snapshot(true, true, c.blocks...))
			f.until(a + " indexed")
			f.announced(len(c.blocks))
			for range tolerated {
				if c := f.answered("hello", 3*blockTokens); !c.Announced || c.Doubted || c.Held.Blocks != 0 {
					t.Fatalf("%+v", c)
				}
			}
			f.until(a + " indexed")
			f.answered("hello", 3*blockTokens)
			f.until(a + " degraded (diverging: " + void + ")")
			if n := testutil.ToFloat64(f.metrics.cached.WithLabelValues("large", "reported")); n != (tolerated+1)*3*blockTokens {
				t.Errorf("%v tokens are reported", n)
			}
			if n := testutil.ToFloat64(f.metrics.cached.WithLabelValues("large", "best")); n != 0 {
				t.Errorf("%v tokens were the best", n)
			}
		})
	}
}

// TestNoWordOfWhatWasSent: an engine that reports no cached tokens is judged by what it was sent, for it should announce that.
func TestNoWordOfWhatWasSent(t *testing.T) {
	const a = "10.0.0.1:1"
	f := follow(t, a)
	f.asked(0)
	f.tell(0, sized(template), snapshot(true, true))
	f.until(a + " indexed")
	f.announced(0)
	for range tolerated + 2 { // the first was not sent before
		f.answered(strings.Repeat("a long prompt ", 100), -1)
	}
	f.until(a + " degraded (diverging: " + void + ")")
}

// TestADegradedWorkerIsCompared: what it announces is noted all the same, so that it is believed again when it fits.
func TestADegradedWorkerIsCompared(t *testing.T) {
	const a = "10.0.0.1:1"
	f := follow(t, a)
	f.asked(0)
	p := pieces(7)
	f.tell(0, sized(template), snapshot(true, true, p[0]))
	f.held(1, a)
	for range tolerated + 1 {
		f.answered("hello", 3*blockTokens)
	}
	f.until(a + " degraded (diverging: its engine reports other cached tokens than it announces)")
	f.tell(0, changes(5, stored(p[1]), stored(p[2])))
	f.held(3, a)
	c := f.answered("hello", 3*blockTokens)
	if !c.Doubted || c.Held.Blocks != 3 || !strings.Contains(c.Explain(), ", announced 3 blocks of 11 bytes, not believed (chosen)") {
		t.Errorf("%+v\n%s", c, c.Explain())
	}
	for range window {
		f.answered("hello", 2*blockTokens) // the engine computes the last token again: a block less is no doubt
	}
	f.until(a + " indexed")
	if c := f.answered("hello", 3*blockTokens); c.Doubted || c.Held.Blocks != 3 {
		t.Errorf("%+v", c)
	}
	for range tolerated + 1 {
		f.answered("hello", 0)
	}
	f.until(a + " degraded (diverging: its engine reports other cached tokens than it announces)")

	f.tell(0, nil) // another stream of the same run changes nothing
	f.asked(0)
	f.tell(0, sized(template), snapshot(true, true, p...))
	f.until(a + " degraded (diverging: its engine reports other cached tokens than it announces)")
	f.tell(0, nil) // another run does
	f.asked(0)
	again := snapshot(true, true, p...)
	again.Epoch = "2"
	f.tell(0, sized(template), again)
	f.until(a + " indexed")
}

// TestABurstIsNoDivergence: prompts that are picked for while the same is being computed find more than was announced.
func TestABurstIsNoDivergence(t *testing.T) {
	const a = "10.0.0.1:1"
	f := follow(t, a)
	f.asked(0)
	f.tell(0, sized(template), snapshot(true, true))
	f.until(a + " indexed")
	f.announced(0)
	req, body := chat(t, strings.Repeat("a long prompt ", 100))
	var all []router.Choice
	for range 3 * window {
		c, err := f.Pick(t.Context(), time.Now(), "large", router.Ask{}, req, body)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	cached := int64(100)
	for _, c := range all {
		c.Booking.FirstByte()
		c.Booking.Served(&cached)
		c.Booking.Release()
	}
	f.until(a + " indexed")
	if n := testutil.CollectAndCount(loads{f.Picker}, "spokegate_picker_parted"); n != 1 {
		t.Errorf("%d workers are judged", n)
	}
}

// TestWorkersLearnOneAfterTheOther: the size of its blocks, and that it tells roots, a worker knows from its first event on. Both
// are its own.
func TestWorkersLearnOneAfterTheOther(t *testing.T) {
	const a, b = "10.0.0.1:1", "10.0.0.2:1"
	f := follow(t, a, b)
	f.asked(0)
	f.asked(1)
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true))
	f.tell(1, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true))
	f.until(a + " indexed; " + b + " indexed")
	learnt := sized(template)
	learnt.GetProfile().TellsRoots = true
	f.tell(1, learnt, changes(5, stored(pieces(7)[0])))
	f.held(1, b)
	f.until(a + " indexed; " + b + " indexed")
}

// TestSaltedPromptsAreExact: a prompt with a salt is found under the root that its worker announces it by.
func TestSaltedPromptsAreExact(t *testing.T) {
	const a = "10.0.0.1:1"
	f := follow(t, a)
	f.asked(0)
	p := pieces(7)
	p[0].Root = blocktree.Root(7, "", "mine")
	told := sized(template)
	told.GetProfile().TellsRoots = true
	f.tell(0, told, snapshot(true, true, p...))
	f.until(a + " indexed")
	f.announced(len(p))
	for salt, want := range map[string]int{`"mine"`: 3, `"another"`: 0, `""`: 0} {
		req, body := scanned(t, fmt.Appendf(nil, `{"model":"m","cache_salt":%s,"messages":[{"role":"user","content":"hello"}]}`, salt))
		c, err := f.Pick(t.Context(), time.Now(), "large", router.Ask{}, req, body)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Announced || c.Held.Blocks != want {
			t.Errorf("salt %s: %+v", salt, c.Held)
		}
		c.Booking.Release()
	}
}
