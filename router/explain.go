package router

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Explain says in text what each eligible worker would have cost, one line a worker, the cheapest first, with all that its cost
// was made of; of what Pick chose from, the cheapest 16 and those named:
//
//	10 blocks; cost = 1 × prefill + decode
//	10.0.0.2:8000: overlap 5, prefill 5, decode 5, requests 1, cost 10 (chosen)
//	10.0.0.3:8000: overlap 8, prefill 2, decode 9, requests 1, cost 11
//
// Prefill is what the worker would have to compute, of this prompt and of what waits there; missing is of this prompt alone. Decode
// and requests are those before this one, others' with them.
func (c Choice) Explain() string {
	if len(c.all) == 0 {
		return "no choice\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d blocks; cost = %s\n", c.Blocks, c.formula())
	chosen := -1 // all are busy
	if len(c.order) > 0 {
		chosen = c.order[0]
	}
	c.lines(&b, c.all, chosen)
	if c.rest > 0 {
		fmt.Fprintf(&b, "and %d more that cost as much or more\n", c.rest)
	}
	if len(c.prefills) > 0 {
		fmt.Fprintf(&b, "prefill elsewhere, where %d tokens are missing and less than %g of the prompt is held: cost = that there + %g × prefill + decode%s + missing%s\n",
			c.how.Split.MinTokens, c.how.Split.CachedShare, c.how.OverlapWeight, c.active(), c.affinity())
		at := -1
		if c.Prefill != "" {
			at = c.prefill
		}
		c.lines(&b, c.prefills, at)
	}
	return b.String()
}

func (c *Choice) formula() string {
	prefill, overlap := "prefill", ""
	if c.how.MissWeight > 0 {
		prefill = fmt.Sprintf("(prefill + %g × missing)", c.how.MissWeight)
	}
	if c.how.CreditDecay > 0 {
		overlap = fmt.Sprintf("; overlap counts 1 / (1 + %g × requests)", c.how.CreditDecay)
	}
	return fmt.Sprintf("%g × %s + decode%s%s%s", c.how.OverlapWeight, prefill, c.active(), c.affinity(), overlap)
}

func (c *Choice) active() string {
	if c.how.ActiveWeight == 0 {
		return ""
	}
	return fmt.Sprintf(" + %g × requests", c.how.ActiveWeight)
}

func (c *Choice) affinity() string {
	if c.how.AffinityWeight == 0 {
		return ""
	}
	return fmt.Sprintf(" − %g × blocks where the session was last", c.how.AffinityWeight)
}

// lines writes candidates, the cheapest first.
func (c *Choice) lines(b *strings.Builder, cs []candidate, chosen int) {
	places := make([]int, len(cs))
	for i := range places {
		places[i] = i
	}
	slices.SortStableFunc(places, func(a, b int) int { return cmp.Or(cs[a].compare(&cs[b]), cmp.Compare(a, b)) })
	for _, i := range places {
		c.line(b, &cs[i])
		if i == chosen {
			b.WriteString(" (chosen)")
		}
		b.WriteByte('\n')
	}
}

func (c *Choice) line(b *strings.Builder, k *candidate) {
	say := func(format string, args ...any) { fmt.Fprintf(b, format, args...) }
	say("%s", k.w.addr)
	if k.why.rank >= 0 {
		say(" rank %d", k.why.rank)
	}
	say(": overlap %d", k.held)
	if k.pooled > 0 {
		say(" with %d by the shared pool", k.pooled)
	}
	credit := credit(c.how, int(k.held), k.load.requests)
	if c.how.CreditDecay > 0 {
		say(" counting %.6g", credit)
	}
	if k.split {
		say(", missing %d, prefill %d", c.Blocks-int(k.held), k.load.prefill)
	} else {
		say(", prefill %.6g", float64(c.Blocks)-credit+float64(k.load.prefill))
	}
	say(", decode %d, requests %d, cost %.6g", k.load.decode, k.load.requests, k.cost)
	if o := k.why.others; o != (load{}) {
		say(", of that others' prefill %d, decode %d, requests %d", o.prefill, o.decode, o.requests)
	}
	if k.why.feed {
		say(", announced %d blocks of %d bytes", k.why.announced.Blocks, k.why.announced.Bytes)
		if k.why.doubted {
			say(", not believed")
		}
	}
	for _, s := range []struct {
		is   bool
		text string
	}{{k.split, "prefill elsewhere"}, {k.stays, "the session was here last"}, {k.busy != notBusy, "busy: " + k.why.use.say(k.busy, c.how.Busy)}} {
		if s.is {
			say(", %s", s.text)
		}
	}
}
