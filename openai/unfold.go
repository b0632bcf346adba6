package openai

import (
	"context"
	"net/http"
	"time"
)

// A few bytes may unfold to as many as a Decoder's Most. So that nobody fills the memory, or keeps all processors, by sending
// many of them, a body that grows beyond its fair size is in memory only with a place, of which there are decodePlaces. Its
// fair size is fairRatio times what was sent, more than text compresses to as a rule, but at least fairLeast.
const (
	fairRatio    = 8
	fairLeast    = 256 << 10 // bytes
	decodePlaces = 4
)

// Decoder takes content-encodings off bodies, of the large ones few at a time.
type Decoder struct {
	most   int64
	places chan struct{} // one for each body that has one
}

// NewDecoder decodes bodies of up to most bytes.
func NewDecoder(most int64) *Decoder {
	return &Decoder{most: most, places: make(chan struct{}, decodePlaces)}
}

// Decode is DecodeBody, and waits until there is a place where it needs one; once ctx is done it refuses instead (503). done
// must be called when the body is used no more; it is never nil.
func (d *Decoder) Decode(ctx context.Context, encoding string, sent []byte) (body []byte, done func(), refused *Error) {
	fair := min(max(fairRatio*int64(len(sent)), fairLeast), d.most)
	body, refused = DecodeBody(encoding, sent, fair)
	if refused == nil || refused.Status != http.StatusRequestEntityTooLarge || fair == d.most {
		return body, func() {}, refused
	}
	done = func() {}
	select {
	case d.places <- struct{}{}:
		done = func() { <-d.places }
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // perhaps in spite of a place
		return nil, done, Unavailable("the request has waited too long", time.Second)
	}
	body, refused = DecodeBody(encoding, sent, d.most)
	return body, done, refused
}
