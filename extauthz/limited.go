package extauthz

import (
	"fmt"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
)

// limited words a limiter's refusal: which limit, what is left of it, and when to come back, if ever.
func limited(b *limits.Standing, s size, now time.Time) *openai.Error {
	if b == nil { // a limiter that refuses and cannot say why
		return openai.Unavailable("limits cannot be checked at the moment", time.Second)
	}
	text, never := fmt.Sprintf("Limit reached: %s.", b), b.RetryAfter < 0
	if b.Kind == limits.TokensPerMinute || never {
		text = fmt.Sprintf("%s %s", text, s)
	}
	if never {
		text += " Shorten it, or lower the limit of its answer (max_tokens)."
	}
	switch b.Kind {
	case limits.Rate:
		return openai.RateLimited(text, b.RetryAfter)
	case limits.Concurrency:
		return openai.ConcurrencyLimited(text, b.RetryAfter)
	case limits.TokensPerMinute:
		if never {
			return openai.AboveLimit(text)
		}
		return openai.TokensLimited(text, b.RetryAfter)
	}
	if !never {
		text += now.Add(b.RetryAfter).Round(time.Minute).UTC().Format(" The quota begins anew at 2006-01-02 15:04 UTC.")
	}
	return openai.QuotaExceeded(text)
}
