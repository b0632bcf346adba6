package usage

import usagev1 "github.com/spokegate/spokegate/api/usage/v1"

// The parts of a record that are objects of their own. An absent one is null.

func (o *object) checkpoint(c *usagev1.Checkpoint) {
	if c == nil {
		o.null("checkpoint")
		return
	}
	in := o.open("checkpoint")
	in.uint("epoch", c.Epoch)
	in.uint("sequence", c.Sequence)
	in.uint("count", c.Count)
	in.str("digest", c.Digest)
	in.bool("closing", c.Closing)
	in.str("public_key", c.PublicKey)
	in.str("signature", c.Signature)
	o.close(in)
}

func (o *object) price(p *usagev1.Price) {
	if p == nil {
		o.null("price")
		return
	}
	in := o.open("price")
	in.str("currency", p.Currency)
	in.int("input", p.Input)
	in.int("cached", p.Cached)
	in.int("output", p.Output)
	o.close(in)
}

func (o *object) engine(c *usagev1.EngineCounters) {
	if c == nil {
		o.null("engine")
		return
	}
	in := o.open("engine")
	in.str("moment", c.Moment)
	in.optional("prompt_tokens", c.PromptTokens)
	in.optional("completion_tokens", c.CompletionTokens)
	o.close(in)
}

func (o *object) rejection(r *usagev1.Rejection) {
	if r == nil {
		o.null("rejection")
		return
	}
	in := o.open("rejection")
	in.str("code", r.Code)
	in.str("limit", r.Limit)
	in.uint("count", r.Count)
	in.str("reason", r.Reason)
	o.close(in)
}

func (o *object) balance(b *usagev1.Balance) {
	if b == nil {
		o.null("balance")
		return
	}
	in := o.open("balance")
	in.time("from", b.From)
	in.time("to", b.To)
	in.time("hour", b.Hour)
	in.str("of", b.Of)
	in.bool("balanced", b.Balanced)
	in.uint("admitted", b.Admitted)
	in.uint("usage", b.Usage)
	in.uint("served", b.Served)
	in.uint("open", b.Open)
	in.uint("missing_usage", b.MissingUsage)
	in.uint("missing_admitted", b.MissingAdmitted)
	in.uint("missing_served", b.MissingServed)
	in.uint("token_differences", b.TokenDifferences)
	in.uint("conflicts", b.Conflicts)
	in.uint("doubled", b.Doubled)
	in.uint("repaired", b.Repaired)
	in.uint("lost", b.Lost)
	in.int("prompt_tokens", b.PromptTokens)
	in.int("completion_tokens", b.CompletionTokens)
	in.int("cut_tokens", b.CutTokens)
	in.uint("gaps", b.Gaps)
	in.uint("altered", b.Altered)
	in.uint("damaged", b.Damaged)
	in.uint("engine_differences", b.EngineDifferences)
	o.close(in)
}

// open begins an object inside; close ends it.
func (o *object) open(name string) object {
	o.name(name)
	return object{b: append(o.b, '{')}
}

func (o *object) close(in object) { o.b = append(in.b, '}') }

func (o *object) int(name string, v int64) { o.optional(name, &v) }
