package policy

import policyv1 "github.com/spokegate/spokegate/api/policy/v1"

// answers are, by the name that a request asks for, the least that it reserves for its answer where it says nothing of it: of an
// alias, that of the target with the least.
func answers(set *policyv1.Set) map[string]uint32 {
	out := map[string]uint32{}
	for _, m := range set.GetModels() {
		if len(m.GetTargets()) == 0 {
			out[m.GetName()] = uint32(tokensOf(set.GetPlatform().GetTokens(), m.GetTokens()).OutputMost)
		}
	}
	for _, m := range set.GetModels() {
		for _, t := range m.GetTargets() {
			of, known := out[t.GetModel()]
			if least, has := out[m.GetName()]; known && (!has || of < least) {
				out[m.GetName()] = of
			}
		}
	}
	return out
}

// roomForOne refuses limits of tokens that no request without max_tokens would ever pass, whichever model it is for.
func (c *checker) roomForOne(l *policyv1.Limit, path string, asks func(name string) bool) {
	if c.kept {
		return
	}
	least, known := uint32(0), false
	for _, q := range []struct {
		field string
		value *uint64
	}{{"tokens_per_minute", l.TokensPerMinute}, {"tokens_per_day", l.TokensPerDay}, {"tokens_per_month", l.TokensPerMonth}} {
		if q.value == nil || *q.value < 1 || *q.value > MaxCount { // output_most goes no further
			continue
		}
		if !known {
			least, known = c.leastAnswer(l.GetModel(), asks), true
		}
		if *q.value <= uint64(least) {
			c.add(l, path, q.field, -1, "a request without max_tokens reserves %d tokens and its prompt, so none would ever pass; "+
				"want more than %d here, or a lower tokens.output_most at the platform or the model", least, least)
		}
	}
}

// leastAnswer is the least that a request counted by a limit reserves for its answer: of one model, or of all that its owner may
// ask for. 0: there is none.
func (c *checker) leastAnswer(model string, asks func(name string) bool) uint32 {
	if model != "" {
		return c.answers[model]
	}
	least := uint32(0)
	for name, n := range c.answers {
		if (least == 0 || n < least) && asks(name) {
			least = n
		}
	}
	return least
}
