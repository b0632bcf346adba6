// Package extauthz is the door's admission: Envoy's ext_authz service. It turns a check into a question, asks the policy, the limiter
// and the picker, opens the flight, and puts the answer into Envoy's words. Checks come over gRPC, and those with large bodies
// from the door's own Envoy over HTTP/1.1, which costs both of them less. Question, decision and answer are the same.
//
// It promises that a request passes only with a known key, a permitted model and room within every limit, that what it
// says is the only identity a request carries from then on, that a refusal changes no counter, and that none is touched before
// the key is proved. It fails closed: any doubt, a done context among them, is a refusal. It keeps nothing of a body once the
// answer is made. It does not watch what becomes of the request: package extproc does.
package extauthz

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
)

// Picker names the workers for an admitted request and books the first of them.
type Picker interface {
	// Pick answers with at least one address, or with an error that says in a sentence why no worker takes it; where all are busy
	// it is a router.BusyError, and the choice can explain itself. hints are of the request and its client: the prompt is not in
	// them.
	Pick(ctx context.Context, now time.Time, endpoint string, hints router.Ask, req *openai.Request, body []byte) (router.Choice, error)
}

// Config is all that admission needs; every field is required but where nil is said to mean something.
type Config struct {
	Policy  *policy.Current
	Limiter limits.Limiter
	Flights *flight.Table
	Minter  *identity.Minter
	// Secrets are what the door shares with the worker at an address; nil: nothing with any, and all contexts are signed. A request
	// whose workers all have one must go to no other.
	Secrets func(addr string) (identity.Secret, bool)
	// Picker names the worker in the admission's answer; nil: a picker of its own follows in Envoy's chain.
	Picker Picker
	// PickInHeader has the workers named in a header as well as in metadata, for gateways whose Envoy reads only that.
	PickInHeader bool
	// Issuers verifies JWTs; nil: only keys are credentials.
	Issuers Issuers
	// Refusals journals what is refused; nil: nobody does.
	Refusals Refusals
	// Closed says why nobody is admitted just now, in a sentence for clients; "": all is well. Nil: it always is.
	Closed func() string
	// BodyLimit in bytes, so that a body that Envoy would refuse is refused on its content-length. It holds for a body that
	// arrives encoded, and again for what it decodes to.
	BodyLimit  int64
	Now        func() time.Time
	Registerer prometheus.Registerer
	// Tracer makes the span "admission"; nil: none.
	Tracer trace.Tracer
	Log    *slog.Logger
}

// Server answers Envoy's checks.
type Server struct {
	Config
	metrics *metrics
	guesses *guesses
	decoder *openai.Decoder
}

// New makes the service.
func New(c Config) *Server {
	return &Server{Config: c, metrics: newMetrics(c.Registerer), guesses: newGuesses(), decoder: openai.NewDecoder(c.BodyLimit)}
}

// decide answers one question. Envoy asks on headers alone where the body is large, and then with the body: which of the two it is,
// Envoy's configuration says, where no client can reach. An error is ctx's: nobody hears the answer, and it opened nothing.
func (s *Server) decide(ctx context.Context, q *question, head bool) (a answer, err error) {
	began := s.Now()
	if s.Tracer != nil {
		var span trace.Span
		ctx, span = s.begin(ctx, q)
		defer func() {
			a.describe(span)
			span.End()
		}()
	}
	if head {
		a = s.head(*q)
	} else {
		a = s.admit(ctx, *q)
	}
	took := s.Now().Sub(began)
	if a.held {
		s.guesses.hold(ctx)
	}
	a.id = q.id
	if err := ctx.Err(); err != nil {
		// Envoy has given up on us; an OK that arrives late may still be believed.
		s.abandon(&a)
		return a, err
	}
	s.metrics.decided(a, took)
	s.note(ctx, q.id, &a)
	s.journal(q, &a)
	return a, nil
}

// note logs what did not pass: names of the policy and the error's code, and nothing that a client wrote. How many lines a
// second there can be is the logger's to bound.
func (s *Server) note(ctx context.Context, admission string, a *answer) {
	level, text := slog.LevelInfo, "refused"
	if a.unserved != "" {
		level, text = slog.LevelWarn, "admitted, but not served"
	}
	if a.refusal == nil || !s.Log.Enabled(ctx, level) {
		return
	}
	list := []slog.Attr{slog.String("admission", admission), slog.String("code", a.refusal.Code), slog.Int("status", a.refusal.Status)}
	if a.key != nil {
		list = append(list, slog.String("key", a.key.ID), slog.String("team", a.key.Team.Name))
	}
	if a.model != nil {
		list = append(list, slog.String("model", a.model.Name), slog.String("endpoint", a.model.Endpoint.Name))
	}
	if a.binding != nil {
		list = append(list, slog.String("limit", a.binding.String()))
	}
	if why := cmp.Or(a.reason, a.unserved); why != "" {
		list = append(list, slog.String("reason", why))
	}
	if a.wrong != nil {
		list = append(list, slog.String("wrong", a.wrong.Error()))
	}
	s.Log.LogAttrs(ctx, level, text, list...)
}

// abandon says of a flight that an answer opened which nobody will hear: nothing passed. Why, Envoy's log tells in a moment:
// the client left, or Envoy waited too long.
func (s *Server) abandon(a *answer) {
	s.metrics.decisions.WithLabelValues("abandoned").Inc()
	if a.admission != "" {
		a.unserved = "Envoy gave up"
		s.Flights.End(a.admission, nothingPassed(s.Now()))
	}
}
