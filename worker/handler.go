package worker

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
)

// Header names between door and shim, in the form of http.Header's keys.
const (
	contextHeader = "X-Spokegate-Context"
	refusedHeader = "X-Spokegate-Refused"
	attemptHeader = "X-Envoy-Attempt-Count"
)

// retryAfter is told with what another worker may serve.
const retryAfter = time.Second

// ServeHTTP serves one attempt: only with a valid context, and only while the engine is ready. A path or a worker that
// serves nobody uses no context up; a body that is refused does.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	// A refusal too waits for the rest of its body, and no longer.
	rc := http.NewResponseController(rw)
	_ = rc.SetReadDeadline(time.Now().Add(w.cfg.BodyTimeout))
	op, _, bad := openai.Route(r.Method, r.URL.Path)
	if bad == nil && op.Local() {
		bad = openai.UnknownURL(r.URL.Path) // the door answers these
	}
	if bad != nil {
		w.refuse(rw, r, op, bad.Code, bad)
		return
	}
	leave, at := w.states.enter()
	if leave == nil {
		w.refuse(rw, r, op, reasonOf(at), openai.Unavailable("This worker is "+reasonOf(at)+".", retryAfter))
		return
	}
	defer leave()
	trusted, err := w.verify(r)
	if err != nil {
		reason, answer := untrusted(err)
		w.refuse(rw, r, op, reason, answer)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil) // the engine stops now, however we got here
	gone, before := w.running.enter(trusted.Admission, cancel, time.Now())
	if before != nil {
		w.refuse(rw, r, op, before.reason, before.answer())
		return
	}
	defer gone()
	a := &attempt{w: w, op: op, trusted: trusted, number: attemptOf(r.Header), rc: rc, ctx: ctx}
	if w.cfg.Tracer != nil {
		a.beginSpan(r)
		defer a.endSpan()
	}
	switch refused, err := a.read(rw, r); {
	case refused != nil:
		w.refuse(rw, r, op, refused.Code, refused)
		return
	case err != nil:
		a.outcome = clientCut
	default:
		a.serve(rw, r)
	}
	a.close()
}

func (w *Worker) verify(r *http.Request) (identity.Context, error) {
	tokens := r.Header[contextHeader]
	if len(tokens) != 1 {
		return identity.Context{}, identity.ErrInvalid
	}
	return w.verifier.Verify(tokens[0], time.Now())
}

// reasonOf is why a worker that is not ready does not serve.
func reasonOf(at standing) string {
	switch at.state {
	case workerv1.State_STATE_DRAINING, workerv1.State_STATE_STOPPED:
		return "draining"
	case workerv1.State_STATE_FAILED:
		return "failed"
	}
	return "starting"
}

// Why a context is refused.
const (
	contextInvalid    = "context_invalid"     // missing, malformed, or its signature is wrong
	contextUnknownKey = "context_unknown_key" // of a stranger, or of a door that this worker has not joined
	contextExpired    = "context_expired"     // or not valid yet
	contextAudience   = "context_audience"    // for another endpoint
	contextReplayed   = "context_replayed"    // used before
)

func untrusted(err error) (reason string, answer *openai.Error) {
	reason, status := contextInvalid, http.StatusUnauthorized
	switch {
	case errors.Is(err, identity.ErrExpired):
		reason = contextExpired
	case errors.Is(err, identity.ErrUnknownKey):
		reason = contextUnknownKey
	case errors.Is(err, identity.ErrAudience):
		reason, status = contextAudience, http.StatusForbidden
	case errors.Is(err, identity.ErrReplayed):
		reason, status = contextReplayed, http.StatusForbidden
	}
	return reason, &openai.Error{Status: status, Type: "invalid_request_error", Code: "invalid_context",
		Message: "Workers serve through the door only: " + err.Error() + "."}
}

// refuse answers without the engine. No record is written: nothing was served.
func (w *Worker) refuse(rw http.ResponseWriter, r *http.Request, op openai.Op, reason string, e *openai.Error) {
	w.log.Info("refused", "admission", claimed(r.Header), "code", reason)
	w.metrics.refused.WithLabelValues(reason).Inc()
	rw.Header().Set(refusedHeader, reason)
	answer(rw, op, e)
}

// answer sends an error of our own and returns the bytes of its body.
func answer(rw http.ResponseWriter, op openai.Op, e *openai.Error) int64 {
	body := e.Body(op)
	for _, h := range e.Headers() {
		rw.Header().Set(h.Name, h.Value)
	}
	rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
	rw.WriteHeader(e.Status)
	n, _ := rw.Write(body) // a client that has left shows elsewhere
	return int64(n)
}

// claimed is the admission as the request names it, which may be none of ours: it is no key and no text, for it is a UUID.
func claimed(h http.Header) string {
	id := h.Get("X-Request-Id")
	if uuidForm.MatchString(id) {
		return id
	}
	return ""
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// attemptOf is the number that Envoy gave this attempt; 1 where it gave none.
func attemptOf(h http.Header) uint32 {
	n, err := strconv.ParseUint(strings.TrimSpace(h.Get(attemptHeader)), 10, 16)
	if err != nil || n == 0 {
		return 1
	}
	return uint32(n)
}
