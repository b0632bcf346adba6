package extauthz

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
)

// caller is what the headers alone prove.
type caller struct {
	op   openai.Op
	arg  string // of GET /v1/models/ARG
	snap *policy.Snapshot
	key  *policy.Key
	// The model that the body names, once it is permitted.
	model *policy.Model
}

func (c caller) refused(e *openai.Error) answer {
	return answer{op: c.op, key: c.key, model: c.model, refusal: e}
}

// head answers on headers alone: it refuses what is hopeless before Envoy buffers a large body, and counts nothing.
func (s *Server) head(q question) answer {
	c, refusal := s.identify(q)
	if refusal != nil {
		return c.refused(refusal)
	}
	if c.op == openai.Models {
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
	if refusal != nil {
		return c.refused(refusal)
	}
	if c.op == openai.Models {
		return listModels(c)
	}
	if err := q.checkType(); err != nil {
		return c.refused(err)
	}
	req, refusal := openai.Scan(c.op, q.body)
	if refusal != nil {
		return c.refused(refusal)
	}
	if c.model, refusal = c.permitted(req, q.body); refusal != nil {
		return c.refused(refusal)
	}
	return s.open(ctx, q, c, req)
}

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
	h, ok := q.credential()
	if !ok {
		return c, openai.InvalidKey()
	}
	c.key = c.snap.Key(h)
	if c.key == nil || c.key.Refused(s.Now()) != "" {
		return c, openai.InvalidKey()
	}
	if wrongPath != nil {
		return c, wrongPath
	}
	if err := q.checkHost(); err != nil {
		return c, err
	}
	return c, q.checkQuery()
}

// permitted resolves the model and checks what the body may steer.
func (c caller) permitted(req *openai.Request, body []byte) (*policy.Model, *openai.Error) {
	model := c.snap.Model(req.Model)
	if model == nil {
		return nil, openai.ModelNotFound(req.Model)
	}
	if !c.key.Allows(model) {
		return nil, openai.ModelNotAllowed(req.Model)
	}
	for _, field := range req.Steering() {
		if !model.Endpoint.AllowFields[field] {
			return nil, openai.InvalidBody(field, fmt.Sprintf("the field %q steers the engine and is not allowed for this model", field))
		}
	}
	if !model.Endpoint.AllowFields[openai.MediaURLs] && req.Fetches(body) {
		return nil, openai.InvalidBody("", "an address that the engine would fetch is not allowed for this model; send media inline, as a data: URL")
	}
	return model, nil
}

// open takes the places that the request needs, opens its flight, and asks for a worker.
func (s *Server) open(ctx context.Context, q question, c caller, req *openai.Request) answer {
	now, model := s.Now(), c.model
	decision, err := s.Limiter.Acquire(ctx, now, limits.Ask{Admission: q.id, Limits: c.snap.Limits(c.key, model, model)})
	if err != nil {
		if ctx.Err() == nil { // else it is the client that failed
			s.Log.Error("limiter failed: request refused", "admission", q.id, "error", err)
		}
		return c.refused(openai.Unavailable("limits cannot be checked at the moment", time.Second))
	}
	if !decision.Admitted {
		return c.limited(decision)
	}
	opened := s.Flights.Open(flight.Admission{
		ID: q.id, Key: c.key.ID, Team: c.key.Team.Name, Model: model.Name, Endpoint: model.Endpoint.Name,
		Revision: c.snap.Revision(), Op: c.op, Stream: req.Stream,
		ClientRequestID: q.clientRequestID, RequestBytes: int64(len(q.body)), At: now,
	}, decision.Hold)
	if !opened && !s.Flights.Live(q.id) { // it had its flight: nothing would count what passed now
		return c.refused(openai.Unavailable("this request has ended already", time.Second))
	}
	a, err := s.dispatch(ctx, q, c, req, now)
	if err != nil {
		a = c.refused(openai.Overloaded(err.Error(), time.Second))
		a.unserved = err.Error()
		switch {
		case errors.Is(err, errLeft): // the log said so, and waits for the meter
			s.Flights.End(q.id, nothingPassed(s.Now()))
		case opened: // else the first answer may be on its way
			s.Flights.End(q.id, notServed(err.Error(), a.refusal.Status, s.Now()))
		}
		return a
	}
	a.admission, a.standing = q.id, decision.Binding()
	return a
}

// dispatch names the worker and signs the context.
func (s *Server) dispatch(ctx context.Context, q question, c caller, req *openai.Request, now time.Time) (answer, error) {
	a := pass()
	a.op, a.key, a.model, a.endpoint = c.op, c.key, c.model, c.model.Endpoint.Name
	if s.Picker != nil {
		choice, err := s.Picker.Pick(ctx, now, a.endpoint, req, q.body)
		if err != nil {
			return answer{}, err
		}
		if !s.Flights.Book(q.id, choice.Booking) {
			choice.Booking.Release()
			return answer{}, errLeft
		}
		a.workers = choice.Addrs
	}
	var err error
	a.context, err = s.Minter.Mint(identity.Context{
		Admission: q.id, Key: c.key.ID, Team: c.key.Team.Name, Model: c.model.Name, Endpoint: a.endpoint, Revision: c.snap.Revision(),
	}, now)
	return a, err
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
