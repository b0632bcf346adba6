package worker

import (
	"cmp"
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
	// prefillContextHeader is a context for the prefill leg. Beside the main one it names the prefiller to ask; alone it asks
	// this worker to prefill.
	prefillContextHeader = "X-Spokegate-Prefill-Context"
	refusedHeader        = "X-Spokegate-Refused"
	attemptHeader        = "X-Envoy-Attempt-Count"
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
	gone, before := w.running.enter(request{trusted.Admission, trusted.Leg}, cancel, time.Now())
	if before != nil {
		w.refuse(rw, r, op, before.reason, before.answer())
		return
	}
	defer gone()
	a := &attempt{w: w, op: op, trusted: trusted, number: attemptOf(r.Header), client: clientOf(r), rc: rc, ctx: ctx}
	if w.cfg.Tracer != nil {
		a.beginSpan(r)
		defer a.endSpan()
	}
	switch refused, err := a.read(rw, r); {
	case refused != nil:
		w.refuse(rw, r, op, cmp.Or(a.refused, refused.Code), refused)
		return
	case err != nil:
		a.outcome = clientCut
	default:
		a.serve(rw, r)
	}
	a.close()
}

// verify checks the context of the leg that is asked for.
func (w *Worker) verify(r *http.Request) (identity.Context, error) {
	leg, tokens := identity.LegMain, r.Header[contextHeader]
	if len(tokens) == 0 && len(r.Header[prefillContextHeader]) > 0 {
		leg, tokens = identity.LegPrefill, r.Header[prefillContextHeader]
	}
	if len(tokens) != 1 {
		return identity.Context{}, identity.ErrInvalid
	}
	c, err := w.verifier.VerifyLeg(tokens[0], leg, time.Now())
	if err == nil && c.Worker != "" && c.Worker != w.address {
		return identity.Context{}, errElsewhere
	}
	return c, err
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
	contextInvalid    = "context_invalid"     // missing, malformed, or its signature or MAC is wrong
	contextUnknownKey = "context_unknown_key" // of a stranger, of a door that this worker has not joined, or by MAC for another worker
	contextExpired    = "context_expired"     // or not valid yet
	contextAudience   = "context_audience"    // for another endpoint
	contextReplayed   = "context_replayed"    // used before
	contextLeg        = "context_leg"         // for another leg
	contextWorker     = "context_worker"      // for another worker
	contextBody       = "context_body"        // for another body
)

var errElsewhere = errors.New("the trusted context is for another worker")

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
	case errors.Is(err, identity.ErrLeg):
		reason, status = contextLeg, http.StatusForbidden
	case errors.Is(err, errElsewhere):
		reason, status = contextWorker, http.StatusForbidden
	}
	return reason, untrustedAnswer(status, err.Error())
}

func untrustedAnswer(status int, why string) *openai.Error {
	return &openai.Error{Status: status, Type: "invalid_request_error", Code: "invalid_context",
		Message: "Workers serve through the door only: " + why + "."}
}

// refuse answers without the engine. No record is written: nothing was served.
func (w *Worker) refuse(rw http.ResponseWriter, r *http.Request, op openai.Op, reason string, e *openai.Error) {
	w.log.Info("refused", "admission", claimed(r.Header), "code", reason)
	w.metrics.refused.WithLabelValues(reason).Inc()
	rw.Header().Set(refusedHeader, reason)
	answer(rw, e, e.Body(op))
}

// answer sends an error of our own and returns how many bytes of its body.
func answer(rw http.ResponseWriter, e *openai.Error, body []byte) int64 {
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
