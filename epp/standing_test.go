package epp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
	"github.com/spokegate/spokegate/router/blocktree"
)

// causes are the workers that should be indexed and are not.
func (f *following) causes(want string) {
	f.Helper()
	if want != "" {
		want = "# HELP spokegate_picker_degraded " + degradedHelp + "\n# TYPE spokegate_picker_degraded gauge\n" + want
	}
	if err := testutil.CollectAndCompare(loads{f.Picker}, strings.NewReader(want), "spokegate_picker_degraded"); err != nil {
		f.Error(err)
	}
}

const degradedHelp = "Workers whose blocks should be known and are not, by cause: unreachable, events, model, profile, block_size, silent, diverging."

// TestMostWorkersTellTheProfile: whoever tells another than most is degraded, however early it came; when most change, the others
// are.
func TestMostWorkersTellTheProfile(t *testing.T) {
	const a, b, c = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"
	const differ = " degraded (profile differs: the tokenizer or chat template of more of the endpoint's workers is another)"
	const odd = "{% for m in messages %}{{ m.content }}{% endfor %}"
	f := follow(t, a, b, c)
	for i := range 3 {
		f.asked(i)
	}
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, odd), snapshot(true, true))
	f.until(a + " indexed")
	f.tell(1, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true, pieces(7)...))
	f.until(a + " indexed; " + b + differ) // as many: who was first
	f.tell(2, profile(workerv1.Profile_MODE_INDEXED, template))
	for i := range 3 { // most have changed: all are asked for everything again
		f.asked(i)
	}
	f.tell(1, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true, pieces(7)...))
	f.until(a + differ + "; " + b + " indexed; " + c + " indexed")
	f.causes("spokegate_picker_degraded{cause=\"profile\",endpoint=\"large\"} 1\n")
	f.held(3, b)
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, odd), snapshot(true, true))
	f.until(a + differ + "; " + b + " indexed; " + c + " indexed")
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, template)) // it was mended: what it told before is of use now
	f.asked(0)
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true))
	f.until(a + " indexed; " + b + " indexed; " + c + " indexed")
	f.causes("")
}

// TestCausesOfADegradedWorker are told at once, by name.
func TestCausesOfADegradedWorker(t *testing.T) {
	const a = "10.0.0.1:1"
	f := follow(t, a)
	f.asked(0)
	w := f.fleet.View().Workers[0]
	for _, c := range []struct {
		p           *workerv1.Profile
		hello       uint32 // tokens a block, as the engine itself says
		state, want string
	}{
		{&workerv1.Profile{Mode: workerv1.Profile_MODE_PREDICTIVE}, 0, "predictive (it announces no blocks)", ""},
		{&workerv1.Profile{Mode: workerv1.Profile_MODE_DEGRADED, Reason: "events cannot be read: x"}, 0, "degraded (events cannot be read: x)", causeEvents},
		{&workerv1.Profile{Mode: workerv1.Profile_MODE_INDEXED, Normalizer: "lowercase"}, 0, `degraded (the tokenizer's normaliser "lowercase" is not known)`, causeModel},
		{&workerv1.Profile{Mode: workerv1.Profile_MODE_INDEXED, BlockSize: 32}, 16, "degraded (block size: its events tell of 32 tokens, its engine of 16)", causeBlockSize},
		{&workerv1.Profile{Mode: workerv1.Profile_MODE_INDEXED, BlockSize: 16}, 16, "indexed", ""},
		{&workerv1.Profile{Mode: workerv1.Profile_MODE_INDEXED, BlockSize: 16}, 0, "indexed", ""},
	} {
		w.BlockSize = c.hello
		f.texts.learn(w, c.p)
		f.until(a + " " + c.state)
		if c.want == "" {
			f.causes("")
		} else {
			f.causes(fmt.Sprintf("spokegate_picker_degraded{cause=%q,endpoint=\"large\"} 1\n", c.want))
		}
	}
}

// TestAWorkerThatAnnouncesNothing and answers long prompts all the same is found out, though no prompt comes twice, its engine
// reports nothing, and the size of its blocks is not known.
func TestAWorkerThatAnnouncesNothing(t *testing.T) {
	const a = "10.0.0.1:1"
	f := follow(t, a)
	f.asked(0)
	f.tell(0, profile(workerv1.Profile_MODE_INDEXED, template), snapshot(true, true))
	f.until(a + " indexed")
	f.announced(0)
	for i := range silentAnswers {
		f.answered(fmt.Sprint(i, strings.Repeat(" a long prompt", 200)), -1)
	}
	f.until(a + " indexed") // not for so long yet
	f.checks.mu.Lock()
	f.checks.all[a].unheardFrom = time.Now().Add(-silentFor)
	f.checks.mu.Unlock()
	f.answered("a short one", -1)
	f.until(a + " indexed")
	f.answered(strings.Repeat("and one more ", 200), -1)
	f.until(a + " degraded (no events: it has announced no block at all, and answers long prompts)")
	f.causes("spokegate_picker_degraded{cause=\"silent\",endpoint=\"large\"} 1\n")
	f.tell(0, changes(5, stored(pieces(7)[0])))
	f.until(a + " indexed")
}

// TestBlocksOfAnAdapterAreItsOwn: whoever asks for an adapter finds the adapter's blocks, be it named by the model's own name or by
// what the engine calls it, and whoever asks for the model never does.
func TestBlocksOfAnAdapterAreItsOwn(t *testing.T) {
	const a = "10.0.0.1:1"
	f := follow(t, a)
	f.asked(0)
	base, sql := pieces(7)[:1], pieces(7)
	for i, b := range sql {
		b.Key += 10
		if b.Parent != 0 {
			b.Parent += 10
		}
		if i == 0 {
			b.Root = blocktree.Root(7, "sql", "")
		}
	}
	named(t, f.Policy, `[{name: base, endpoint: large}, {name: queries, endpoint: large, engine_name: sql}, {name: sql, endpoint: large}, {name: law, endpoint: large}]`)
	told := sized(template)
	told.GetProfile().Adapters = []string{"law", "sql"}
	f.tell(0, told, snapshot(true, true, append(base, sql...)...))
	f.until(a + " indexed")
	f.announced(4)
	for model, want := range map[string]int{"base": 1, "queries": 3, "sql": 3, "law": 0, "nobody's": 1} {
		req, body := scanned(t, fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"hello"}]}`, model))
		c, err := f.Pick(t.Context(), time.Now(), "large", router.Ask{}, req, body)
		if err != nil {
			t.Fatal(err)
		}
		c.Booking.Release()
		if !c.Announced || c.Held.Blocks != want {
			t.Errorf("%s: %d blocks are found, want %d", model, c.Held.Blocks, want)
		}
	}
}

// named gives the policy these models of the endpoint "large".
func named(t *testing.T, c *policy.Current, models string) {
	t.Helper()
	set, err := policy.Parse("test", []byte("endpoints: [{name: large}]\nmodels: "+models+"\nteams: [{name: t, models: [\"*\"]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	snap, err := policy.Compile(set, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.Store(snap)
}

// TestTextBeforeAnImageIsExact, and what is no text is counted by what it is.
func TestTextBeforeAnImageIsExact(t *testing.T) {
	const a = "10.0.0.1:1"
	f := follow(t, a)
	f.asked(0)
	p := pieces(7)
	f.tell(0, sized(template), snapshot(true, true, p...))
	f.until(a + " indexed")
	f.announced(3)
	for what, part := range map[string]string{
		"image": `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`,
		"audio": `{"type":"input_audio","input_audio":{}}`,
		"parts": `{"type":"file"}`,
	} {
		req, body := scanned(t, fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"hello"},{"role":"user","content":[{"type":"text","text":"?"},%s]}]}`, part))
		c, err := f.Pick(t.Context(), time.Now(), "large", router.Ask{}, req, body)
		if err != nil {
			t.Fatal(err)
		}
		c.Booking.Release()
		if c.Held.Blocks != 3 || c.Announced {
			t.Errorf("%s: %+v", what, c.Held)
		}
		if n := testutil.ToFloat64(f.metrics.texts.WithLabelValues("large", what)); n != 1 {
			t.Errorf("%v prompts with %s are counted", n, what)
		}
	}
	body := []byte(`{"model":"m","prompt":[1,2,3]}`)
	req, bad := openai.Scan(openai.Completions, body)
	if bad != nil {
		t.Fatal(bad)
	}
	c, err := f.Pick(t.Context(), time.Now(), "large", router.Ask{}, req, body)
	if err != nil || c.Held.Blocks != 0 || c.Announced {
		t.Errorf("token ids: %+v, %v", c.Held, err)
	}
	c.Booking.Release()
	if n := testutil.ToFloat64(f.metrics.texts.WithLabelValues("large", "tokens")); n != 1 {
		t.Errorf("%v prompts of token ids are counted", n)
	}
}

// TestRootsThatAreNotTold judge nobody: what an engine found of a prompt with a salt, its worker could not announce as such.
func TestRootsThatAreNotTold(t *testing.T) {
	const a = "10.0.0.1:1"
	f := follow(t, a)
	f.asked(0)
	f.tell(0, sized(template), snapshot(true, true, pieces(7)...))
	f.until(a + " indexed")
	f.announced(3)
	cached := int64(3 * blockTokens)
	for range window {
		req, body := scanned(t, []byte(`{"model":"m","cache_salt":"mine","messages":[{"role":"user","content":"hello"}]}`))
		c, err := f.Pick(t.Context(), time.Now(), "large", router.Ask{}, req, body)
		if err != nil {
			t.Fatal(err)
		}
		c.Booking.FirstByte()
		c.Booking.Release()
		c.Booking.Served(&cached)
	}
	f.until(a + " indexed")
}
