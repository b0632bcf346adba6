package extauthz

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
)

// caller is what is known of a request so far.
type caller struct {
	op   openai.Op
	arg  string // of GET /v1/models/ARG
	snap *policy.Snapshot
	key  *policy.Key
	body []byte // decoded; only until the answer is made
	// What is asked for, once it is known, and where it is permitted the model that it goes to: another one where an alias was
	// asked for.
	asked, model *policy.Model
	// As in answer.
	held   bool
	reason string
	wrong  error
}

func (c caller) refused(e *openai.Error) answer {
	a := answer{op: c.op, key: c.key, asked: c.asked, model: c.model, refusal: e, held: c.held, reason: c.reason, wrong: c.wrong}
	if c.snap != nil {
		a.revision = c.snap.Revision()
	}
	return a
}

// head answers on headers alone: it refuses what is hopeless before Envoy buffers a large body, and counts nothing.
func (s *Server) head(q question) answer {
	c, refusal := s.identify(q)
	if refusal != nil {
		return c.refused(refusal)
	}
	if c.op.Local() {
		return pass() // Envoy asks again with the (empty) body
	}
	if err := q.checkType(); err != nil {
		return c.refused(err)
	}
	if q.contentLength > s.BodyLimit {
		return c.refused(openai.BodyTooLarge(s.BodyLimit))
	}
	return pass()
}

// admit decides on the whole request, in the order in which a mistake should be told: who, what, how much, where.
func (s *Server) admit(ctx context.Context, q question) answer {
	c, refusal := s.identify(q)
	switch {
	case refusal != nil:
		return c.refused(refusal)
	case c.op == openai.Models:
		return listModels(c)
	case c.op == openai.KeyUsage:
		return s.keyUsage(ctx, c)
	}
	if refusal = q.checkType(); refusal != nil {
		return c.refused(refusal)
	}
	if q.contentLength > s.BodyLimit { // a gateway may hand over the beginning
		return c.refused(openai.BodyTooLarge(s.BodyLimit))
	}
	body, done, refusal := s.decoder.Decode(ctx, q.contentEncoding, q.body)
	defer done()
	if refusal != nil {
		return c.refused(refusal)
	}
	c.body = body
	req, refusal := openai.Scan(c.op, c.body)
	if refusal != nil {
		return c.refused(refusal)
	}
	if refusal = c.permit(req, q.id); refusal != nil {
		return c.refused(refusal)
	}
	return s.open(ctx, q, c, req)
}

// closedRetry is when a client may ask again at a door that admits nobody.
const closedRetry = 10 * time.Second

// identify finds out who calls what. The key comes first: without one, nothing is told about paths.
func (s *Server) identify(q question) (caller, *openai.Error) {
	op, arg, wrongPath := openai.Route(q.method, q.path())
	c := caller{op: op, arg: arg, snap: s.Policy.Load()}
	switch {
	case c.snap == nil:
		return c, openai.Unavailable("the door has no policy yet", time.Second)
	case q.id == "":
		return c, openai.Unavailable("the request has no id of Envoy's", time.Second)
	}
	if s.Closed != nil {
		if why := s.Closed(); why != "" {
			return c, openai.Unavailable(why, closedRetry)
		}
	}
	now := s.Now()
	if c.key, c.reason, c.wrong = s.prove(c.snap, q, now); c.reason != "" {
		var refusal *openai.Error
		refusal, c.held = s.disproved(q, c.reason, c.wrong, now)
		return c, refusal
	}
	if !within(c.key.Networks, q.address()) {
		c.reason = wrongNetwork
		s.metrics.credentials.WithLabelValues(c.reason).Inc()
		return c, openai.NetworkNotAllowed()
	}
	if wrongPath != nil {
		return c, wrongPath
	}
	if err := q.checkHost(); err != nil {
		return c, err
	}
	return c, q.checkQuery()
}

// permit finds the model and checks what the body may steer. The name that is asked for decides whether it is permitted, the
// model behind it all else. An admission that is asked about twice goes to the same target of an alias.
func (c *caller) permit(req *openai.Request, admission string) *openai.Error {
	asked := c.snap.Model(req.Model)
	if asked == nil {
		return openai.ModelNotFound(req.Model)
	}
	c.asked = asked
	if !c.key.Allows(asked) {
		return openai.ModelNotAllowed(req.Model)
	}
	if asked.Elsewhere != "" {
		return openai.ModelElsewhere(req.Model, asked.Elsewhere)
	}
	c.model = asked.Resolve(xxh3.HashString(admission))
	for _, field := range req.Steering() {
		if !c.model.Endpoint.AllowFields[field] {
			return openai.InvalidBody(field, fmt.Sprintf("the field %q steers the engine and is not allowed for this model", field))
		}
	}
	if !c.model.Endpoint.AllowFields[openai.MediaURLs] && req.Remote {
		return openai.InvalidBody("", "an address that the engine would fetch is not allowed for this model; send media inline, as a data: URL")
	}
	req.Model = c.model.Name // a prompt is the same by whichever name it came
	return nil
}

// alias is the name that was asked for, where it is not the model's own.
func (c caller) alias() string {
	if c.asked == c.model {
		return ""
	}
	return c.asked.Name
}

// open takes the places that the request needs, opens its flight, and asks for a worker.
func (s *Server) open(ctx context.Context, q question, c caller, req *openai.Request) answer {
	now, need := s.Now(), sizeOf(req, c.model)
	ask := limits.Ask{Admission: q.id, Limits: c.snap.Limits(c.key, c.asked, c.model)}
	if countsTokens(ask.Limits) {
		ask.Tokens = need.tokens()
	}
	decision, err := s.Limiter.Acquire(ctx, now, ask)
	if err != nil {
		if ctx.Err() == nil { // else it is the client that failed
			s.Log.Error("limiter failed: request refused", "admission", q.id, "error", err)
		}
		return c.refused(openai.Unavailable("limits cannot be checked at the moment", time.Second))
	}
	if !decision.Admitted {
		binding := decision.Binding()
		s.metrics.limited(binding)
		return c.refused(limited(binding, need, now)).standing(decision)
	}
	opened := s.Flights.Open(flight.Admission{
		ID: q.id, Key: c.key.ID, Team: c.key.Team.Name, Model: c.model.Name, AskedModel: c.alias(), Endpoint: c.model.Endpoint.Name,
		Labels: c.key.Labels, Revision: c.snap.Revision(), Op: c.op, Stream: req.Stream, ClientRequestID: q.clientRequestID, RequestBytes: int64(len(q.body)),
		PromptEstimate: need.prompt, CachedWeight: c.model.Tokens.CachedWeight, Price: c.model.Price, At: now,
	}, decision.Hold)
	if !opened && !s.Flights.Live(q.id) { // it had its flight: nothing would count what passed now
		a := c.refused(openai.Unavailable("this request has ended already", time.Second))
		a.unserved = "it has ended already"
		return a
	}
	a, err := s.dispatch(ctx, q, c, req, now)
	if err != nil {
		explained := a.explained
		a = c.refused(overloaded(err))
		a.unserved, a.explained = err.Error(), explained
		switch {
		case errors.Is(err, errLeft): // the log said so, and waits for the meter
			s.Flights.End(q.id, nothingPassed(s.Now()))
		case opened: // else the first answer may be on its way
			s.Flights.End(q.id, notServed(err.Error(), a.refusal.Status, s.Now()))
		}
		return a
	}
	a.admission = q.id
	return a.standing(decision)
}

// dispatch names the worker and makes the context.
func (s *Server) dispatch(ctx context.Context, q question, c caller, req *openai.Request, now time.Time) (answer, error) {
	a := pass()
	a.op, a.key, a.model, a.endpoint = c.op, c.key, c.model, c.model.Endpoint.Name
	var choice router.Choice
	if s.Picker != nil {
		var err error
		hints := router.Ask{Session: router.SessionOf(c.key.Team.Name, q.conversation()), Sheddable: c.key.Sheddable(), Split: req.Splittable(c.body)}
		choice, err = s.Picker.Pick(ctx, now, a.endpoint, hints, req, c.body)
		if q.asksWhy() && c.key.MayExplain() {
			a.explained = explanation(choice)
		}
		if err != nil {
			return answer{explained: a.explained}, err
		}
		if !s.Flights.Book(q.id, choice.Booking) {
			choice.Booking.Release()
			return answer{}, errLeft
		}
		a.workers, a.inHeader, a.ranks = choice.Addrs, s.PickInHeader, choice.RankList()
	}
	trusted := identity.Context{Admission: q.id, Key: c.key.ID, Team: c.key.Team.Name, Model: c.model.Name, Endpoint: a.endpoint,
		Revision: c.snap.Revision(), Asked: c.alias(), Body: identity.BodyDigest(c.body)}
	if c.model.EngineName != c.asked.Name { // which stands in the body
		trusted.EngineName = c.model.EngineName
	}
	a.context, a.prefill = s.vouch(trusted, now, choice.Addrs), s.prefillLeg(choice, trusted, now)
	return a, nil
}

// overloaded is why no worker takes a request. Where all are busy, what is sheddable is shed, and all else may come again.
func overloaded(err error) *openai.Error {
	var busy *router.BusyError
	switch {
	case !errors.As(err, &busy):
		return openai.Overloaded(err.Error(), time.Second)
	case busy.Sheddable:
		return openai.Shed(busy.RetryAfter)
	}
	return openai.Overloaded("All workers of this model are busy.", busy.RetryAfter)
}

// errLeft: the flight ended while the request was being admitted, for its client left.
var errLeft = errors.New("the client has left")

// nothingPassed is what the meter would say of a request that it never saw.
func nothingPassed(at time.Time) flight.Facts {
	return flight.Facts{Metered: &flight.Metered{At: at}}
}

// notServed are the facts of an admission that the door itself ended: nothing else will tell them.
func notServed(reason string, status int, at time.Time) flight.Facts {
	return flight.Facts{
		Metered: &flight.Metered{Status: status, SawEnd: true, Refused: true, At: at},
		Logged:  &flight.Logged{Status: status, NoUpstream: true, Details: reason, At: at},
	}
}
