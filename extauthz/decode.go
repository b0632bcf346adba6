package extauthz

import (
	"context"
	"net/http"
	"time"

	"github.com/spokegate/spokegate/openai"
)

// A few bytes may unfold to as many as BodyLimit, and are unfolded before any limit is asked. So that nobody fills the door's
// memory, or keeps all its processors, by sending many of them, a body that grows beyond its fair size is in memory only with a
// place, of which there are largePlaces. Its fair size is fairRatio times what was sent, more than text compresses to as a rule,
// but at least fairLeast.
const (
	fairRatio   = 8
	fairLeast   = 256 << 10 // bytes
	largePlaces = 4
)

// decode takes the content-encoding off a body. Done must be called when the body is used no more; it is never nil.
func (s *Server) decode(ctx context.Context, q question) (body []byte, done func(), refusal *openai.Error) {
	fair := min(max(fairRatio*int64(len(q.body)), fairLeast), s.BodyLimit)
	body, refusal = openai.DecodeBody(q.contentEncoding, q.body, fair)
	if refusal == nil || refusal.Status != http.StatusRequestEntityTooLarge || fair == s.BodyLimit {
		return body, func() {}, refusal
	}
	done = func() {}
	select {
	case s.large <- struct{}{}:
		done = func() { <-s.large }
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // perhaps in spite of a place; Check refuses by that, and nobody hears this
		return nil, done, openai.Unavailable("the request has waited too long", time.Second)
	}
	body, refusal = openai.DecodeBody(q.contentEncoding, q.body, s.BodyLimit)
	return body, done, refusal
}
