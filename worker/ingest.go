package worker

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/wire"
)

// read takes the whole body in, up to the deadline that the connection has. err: the client has left.
func (a *attempt) read(rw http.ResponseWriter, r *http.Request) (refused *openai.Error, err error) {
	if mediaType(r.Header) != "application/json" {
		return openai.UnsupportedMediaType(r.Header.Get("Content-Type")), nil
	}
	encoding := strings.Join(r.Header["Content-Encoding"], ",")
	if refused = openai.CheckEncoding(encoding); refused != nil {
		return refused, nil
	}
	sent, refused, err := a.receive(rw, r)
	if sent == nil {
		return refused, err
	}
	a.received = int64(len(*sent))
	if encoding != "" {
		sent, refused = a.plain(encoding, sent)
	}
	if refused == nil {
		refused = a.prepare(sent)
	}
	if refused != nil {
		wire.Buffers.Put(sent)
	}
	return refused, nil
}

// plain takes the encoding off, as the door has done to judge the body: engines do not, or not alike. Like there, few large
// ones unfold at one time.
func (a *attempt) plain(encoding string, sent *[]byte) (*[]byte, *openai.Error) {
	decoded, done, refused := a.w.decoder.Decode(a.ctx, encoding, *sent)
	defer done()
	if refused != nil || len(decoded) > 0 && &decoded[0] == &(*sent)[0] { // there was nothing to take off
		return sent, refused
	}
	wire.Buffers.Put(sent)
	return &decoded, nil
}

// receive reads the body to its end. Of body, refused and err one is given.
func (a *attempt) receive(rw http.ResponseWriter, r *http.Request) (body *[]byte, refused *openai.Error, err error) {
	limit := a.w.cfg.MaxBody
	if r.ContentLength > limit {
		return nil, openai.BodyTooLarge(limit), nil
	}
	if body, err = readAll(http.MaxBytesReader(rw, r.Body, limit), r.ContentLength); err == nil {
		// The server would take a late read for a client that has left.
		_ = a.rc.SetReadDeadline(time.Time{})
		return body, nil, nil
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, openai.BodyTooLarge(limit), nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		rw.Header().Set("Connection", "close")
		return nil, &openai.Error{Status: http.StatusRequestTimeout, Type: "invalid_request_error", Code: "request_timeout",
			Message: "The request took too long to arrive."}, nil
	}
	return nil, nil, err
}

// readAll reads to the end; length is what was announced, or below 0.
func readAll(r io.Reader, length int64) (*[]byte, error) {
	if length < 0 {
		all, err := io.ReadAll(r)
		return &all, err
	}
	body := wire.Buffers.Get(int(length))
	if _, err := io.ReadFull(r, *body); err != nil {
		wire.Buffers.Put(body)
		return nil, err
	}
	return body, nil
}

// prepare makes what the engine gets of what the client sent: the same bytes but for the engine's own name of the model, and
// the options of a stream or of a prefill leg.
func (a *attempt) prepare(sent *[]byte) (refused *openai.Error) {
	if admitted := a.trusted.Body; admitted != "" && admitted != identity.BodyDigest(*sent) {
		a.refused = contextBody
		return untrustedAnswer(http.StatusForbidden, "the trusted context is for another body")
	}
	if a.request, refused = openai.Scan(a.op, *sent); refused != nil {
		return refused
	}
	if a.request.Model != cmp.Or(a.trusted.Asked, a.trusted.Model) { // a context that is bound to no body
		return openai.ModelNotAllowed(a.request.Model)
	}
	if name := a.trusted.EngineName; name != "" {
		a.edits = append(a.edits, rename(a.request, name))
	}
	switch {
	case a.trusted.Leg == identity.LegPrefill:
		if !a.request.Splittable(*sent) {
			return openai.InvalidBody("", "this request cannot be prefilled elsewhere")
		}
		a.edits = append(a.edits, prefillOnly(*sent, a.request)...)
		a.request.Stream = false
	case countable(a.request):
		a.edits = append(a.edits, askRunningUsage(*sent, a.request))
	}
	a.body = newBody(sent)
	return nil
}

// rename puts the engine's name of a model into a body that Scan has accepted.
func rename(q *openai.Request, name string) edit {
	at, _ := q.Get("model") // Scan found it
	quoted, _ := json.Marshal(name)
	return edit{at, quoted}
}

// mediaType is in lower case and without parameters; empty: there is none, or none that can be read.
func mediaType(h http.Header) string {
	switch said := h.Get("Content-Type"); said {
	case "application/json", openai.EventStream:
		return said
	default:
		media, _, _ := mime.ParseMediaType(said)
		return media
	}
}
