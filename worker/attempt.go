package worker

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/usage"
)

// Outcomes, by the names of the usage records.
const (
	complete      = usage.OutcomeComplete
	clientCut     = usage.OutcomeClientCut
	upstreamCut   = usage.OutcomeUpstreamCut
	upstreamError = usage.OutcomeUpstreamError
)

// attempt is one request that this worker took: what is known of it, and how it ended.
type attempt struct {
	w       *Worker
	op      openai.Op
	trusted identity.Context
	number  uint32
	client  *clientConn // nil: it cannot gather
	rc      *http.ResponseController
	ctx     context.Context // done: the client has left, or the request is cut
	span    trace.Span      // nil: no tracing

	received int64           // bytes of the body
	request  *openai.Request // nil: the body did not arrive
	body     *body           // what the client sent; until the engine has answered
	edits    []edit          // what the engine gets in place of parts of it

	epoch     string // of the engine's run that was asked
	status    int    // told to the client; 0: none
	first     time.Time
	sent      int64
	report    openai.Report
	metered   bool
	anomalies []string
	outcome   string // set once the end is known; the zero value is a cut by the engine
	refused   string // why nothing was served: then there is no record
	broken    bool   // the response is not whole, and the client must see that
}

// cut is why the request was ended here; nil: it was not.
func (a *attempt) cut() *cut {
	c, _ := context.Cause(a.ctx).(*cut)
	return c
}

// serve asks the engine and passes its answer on.
func (a *attempt) serve(rw http.ResponseWriter, r *http.Request) {
	resp, err := a.askPrefilled(r)
	a.body.done()
	switch {
	case err == nil:
		defer resp.Body.Close()
		a.relay(rw, r, resp)
	case r.Context().Err() != nil:
		a.outcome = clientCut
	case neverArrived(err) && a.cut() == nil:
		a.refused = "engine_gone"
		a.w.refuse(rw, r, a.op, a.refused, openai.Unavailable("The engine of this worker cannot be reached.", retryAfter))
	default:
		a.brokeOff(err)
		a.cutBefore(rw)
	}
}

// brokeOff says what the engine did, unless it was ended here.
func (a *attempt) brokeOff(err error) {
	if a.cut() == nil {
		a.w.log.Warn("engine broke off", "admission", a.trusted.Admission, "error", err)
	}
}

// cutBefore answers for an engine that broke off before anything of its answer was passed on: the door may try elsewhere,
// unless the key is revoked.
func (a *attempt) cutBefore(rw http.ResponseWriter) {
	a.outcome = upstreamCut
	a.fail(rw, a.cut().answer())
}

// fail answers with an error of our own in the place of the engine's answer, of whose headers only the time to come again
// stays.
func (a *attempt) fail(rw http.ResponseWriter, e *openai.Error) {
	again := rw.Header()["Retry-After"]
	clear(rw.Header())
	if len(again) > 0 {
		rw.Header()["Retry-After"] = again
	}
	a.status, a.first = e.Status, time.Now()
	body := e.Body(a.op)
	a.noteError(rw, body)
	a.sent += answer(rw, e, body)
}

// relay passes the answer on by its kind.
func (a *attempt) relay(rw http.ResponseWriter, r *http.Request, resp *http.Response) {
	body, err := decoded(resp)
	if err != nil {
		a.badEngine(rw, err)
		return
	}
	copyHeaders(rw.Header(), resp.Header)
	media := mediaType(resp.Header)
	switch {
	case resp.StatusCode != http.StatusOK:
		a.relayError(rw, r, resp, body)
	case media == openai.EventStream:
		a.relayStream(rw, r, resp, body)
	default:
		a.relayWhole(rw, r, media, body)
	}
}

// badEngine answers for an engine whose answer makes no sense.
func (a *attempt) badEngine(rw http.ResponseWriter, why error) {
	a.w.log.Error("bad answer of the engine", "admission", a.trusted.Admission, "error", why)
	a.outcome = upstreamError
	a.fail(rw, &openai.Error{Status: http.StatusBadGateway, Type: "server_error", Code: "upstream_error",
		Message: fmt.Sprintf("The engine's answer cannot be passed on: %v.", why)})
}

// close writes the record. Where the response could not be ended properly it breaks the connection: net/http knows no
// other way to say so.
func (a *attempt) close() {
	if a.refused != "" {
		return
	}
	r := a.record()
	a.w.metrics.requests.WithLabelValues(r.Outcome).Inc()
	a.w.cfg.Journal.Append(r)
	if a.broken {
		panic(http.ErrAbortHandler)
	}
}

func (a *attempt) record() *usagev1.Record {
	if a.outcome == "" {
		a.outcome = upstreamCut
	}
	r := &usagev1.Record{
		Id: usage.ServedID(a.trusted.Admission, a.number, cmp.Or(a.trusted.Leg, "main")), Kind: usage.KindServed,
		Admission: a.trusted.Admission, Key: a.trusted.Key, Team: a.trusted.Team, Model: a.trusted.Model,
		Endpoint: a.trusted.Endpoint, Revision: a.trusted.Revision, Spoke: a.w.cfg.Spoke, Worker: a.w.cfg.Name,
		Operation: a.op.String(), Attempt: a.number, Outcome: a.outcome, CountedFrom: usage.CountedNone,
		RequestBytes: new(a.received), ResponseBytes: new(a.sent), EndedAt: timestamppb.Now(), EngineEpoch: a.epoch,
	}
	if a.request != nil {
		r.Stream = a.request.Stream
		if n := a.request.Choices(); n > 1 {
			r.Choices = new(uint32(min(n, math.MaxUint32)))
		}
	}
	if asked := a.trusted.Asked; asked != "" {
		r.AskedModel = &asked
	}
	if a.status != 0 {
		r.Status = new(uint32(a.status))
	}
	if !a.first.IsZero() {
		r.FirstByteAt = timestamppb.New(a.first)
	}
	if a.metered {
		u := a.report.Usage
		r.PromptTokens, r.CachedTokens, r.CompletionTokens, r.ReasoningTokens = u.Prompt, u.Cached, u.Completion, u.Reasoning
		r.CountedFrom = a.report.CountedFrom
	}
	r.Anomalies = append(a.anomalies, a.report.Anomalies...)
	if c := a.cut(); c != nil && c.reason != "" && a.outcome == upstreamCut {
		r.Anomalies = append(r.Anomalies, c.reason)
	}
	return r
}
