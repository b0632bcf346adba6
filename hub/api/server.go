// Package api is the hub's REST API for operators: a translation between HTTP and package hub, which decides.
//
// It promises that what it answers is what /openapi.json says (both are made from one table of routes and the same types),
// that nothing is changed by a request that it did not understand to the last member, that nobody overwrites what they have
// not seen, and that secrets are in one answer and never in a log. Who may call a route stands in the table; on which things,
// the hub says.
package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/hub"
	"github.com/spokegate/spokegate/identity"
)

// Config is what a [Server] needs.
type Config struct {
	Hub hub.API
	// Replicas tells which door holds which revision; nil: nothing is pushed.
	Replicas func() []Replica
	// Used tells what the quotas of wanted owners have counted; nil: nobody adds it up.
	Used       func(wanted func(level, owner string) bool) []Use
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

// Server answers the API. It is safe for concurrent use.
type Server struct {
	Config
	guesses guesses
	metrics metrics
	openapi []byte
}

// New makes a server, which holds nothing that must be closed.
func New(c Config) *Server {
	return &Server{Config: c, guesses: guesses{until: map[netip.Prefix]time.Time{}}, metrics: newMetrics(c.Registerer), openapi: OpenAPI()}
}

// answerTime bounds what a request may take: a policy of a million keys is checked whole.
const answerTime = time.Minute

// Handler serves all routes.
func (s *Server) Handler() http.Handler {
	byPath := map[string][]*route{}
	for _, r := range routes() {
		byPath[r.path] = append(byPath[r.path], r)
	}
	mux := http.NewServeMux()
	for at, list := range byPath {
		mux.HandleFunc(at, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, list) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, nil) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Clean(r.URL.Path) != r.URL.Path { // the mux would send the client elsewhere, and a DELETE on as a GET
			s.serve(w, r, nil)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// call is one request on its way.
type call struct {
	*http.Request
	id       string
	actor    hub.Actor
	route    *route
	query    url.Values
	expected *uint64 // the revision that the thing must have: nil: whichever; 0: it must not exist
	in       any     // a pointer to the route's in
	raw      []byte  // the body as it came
}

// commit is what all changes have in common.
func (c *call) commit(message string) hub.Commit {
	return hub.Commit{Actor: c.actor, Message: message, RequestID: c.id, IdempotencyKey: c.Header.Get("Idempotency-Key")}
}

// serve answers a request for a path, which has these routes.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, list []*route) {
	began := s.Now()
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	c := &call{Request: r.WithContext(ctx), id: newID()}
	h := w.Header()
	h.Set("X-Request-Id", c.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	a, err := s.answer(w, c, list)
	status := http.StatusOK
	if err != nil {
		p := s.problemOf(c, err)
		status = p.Status
		p.write(w, c.id)
	} else {
		status = a.write(w, c)
	}
	s.account(c, status, s.Now().Sub(began))
}

// answer finds the route, and who asks, and what, and does it.
func (s *Server) answer(w http.ResponseWriter, c *call, list []*route) (a answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("the API failed", "request", c.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errors.New("panic")
		}
	}()
	if c.route, err = chosen(c.Request, list); err != nil {
		return a, err
	}
	if !c.route.open {
		if err := s.authenticate(c); err != nil {
			return a, err
		}
	}
	if err := c.route.readable(c, w); err != nil {
		return a, err
	}
	return c.route.do(s, c)
}

// chosen is the route of a request's method.
func chosen(r *http.Request, list []*route) (*route, error) {
	if len(list) == 0 {
		return nil, newProblem(http.StatusNotFound, "There is no such path; /openapi.json has all of them.")
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	p := newProblem(http.StatusMethodNotAllowed, "")
	for _, x := range list {
		if x.method == method {
			return x, nil
		}
		p.allow = append(p.allow, x.method)
		if x.method == http.MethodGet {
			p.allow = append(p.allow, http.MethodHead)
		}
	}
	slices.Sort(p.allow)
	p.Detail = "This path takes " + strings.Join(p.allow, ", ") + "."
	return nil, p
}

// authenticate says whose token it is, and whether the route is for such.
func (s *Server) authenticate(c *call) error {
	secret, is := strings.CutPrefix(c.Header.Get("Authorization"), "Bearer ")
	if !is {
		return newProblem(http.StatusUnauthorized, "Want the header Authorization: Bearer TOKEN with an admin token of the hub.")
	}
	actor, is, err := s.Hub.Authenticate(c.Context(), secret)
	if err != nil {
		s.Log.Error("it cannot be told whose a token is; nobody is let in", "request", c.id, "err", err)
		return newProblem(http.StatusServiceUnavailable, "The hub's database does not answer, and so the hub cannot tell whose token this is. Nothing was done.")
	}
	if !is {
		s.metrics.refused.Inc()
		s.Log.Warn("a wrong token was shown", "request", c.id, "from", c.RemoteAddr)
		if wait := s.guesses.count(sourceOf(c.RemoteAddr), s.Now()); wait > 0 {
			p := newProblem(http.StatusTooManyRequests, "Too many wrong tokens came from your address. Right ones pass.")
			p.retry = wait
			return p
		}
		return newProblem(http.StatusUnauthorized, "The token is none of this hub, or it has expired or was revoked.")
	}
	c.actor = actor
	if !slices.Contains(c.route.roles, actor.Role) {
		return newProblem(http.StatusForbidden, fmt.Sprintf("The token %s has the role %s; this wants %s.", actor.Name, actor.Role, listed(c.route.roles)))
	}
	return nil
}

func listed(roles []hub.Role) string {
	words := make([]string, len(roles))
	for i, r := range roles {
		words[i] = string(r)
	}
	return strings.Join(words, " or ")
}

// problemOf turns an error into what is answered: the one place where errors of the hub get a status.
func (s *Server) problemOf(c *call, err error) *Problem {
	var (
		p         *Problem
		fault     bodyFault
		conflict  *hub.Conflict
		invalid   *hub.Invalid
		forbidden *hub.Forbidden
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &fault):
		p := badRequest("The body is not what is wanted here: " + fault.Error() + ".")
		p.Faults = []Fault{{fault.path, fault.text}}
		return p
	case errors.As(err, &conflict):
		return conflicting(c, conflict)
	case errors.As(err, &invalid):
		p := newProblem(http.StatusUnprocessableEntity, "Nothing was changed. What is wrong:")
		for _, x := range invalid.Problems {
			p.Faults = append(p.Faults, faultOf(x))
		}
		return p
	case errors.As(err, &forbidden):
		return newProblem(http.StatusForbidden, forbidden.Reason)
	case errors.Is(err, hub.ErrNotFound):
		return notFound(strings.TrimSuffix(err.Error(), ": "+hub.ErrNotFound.Error()))
	case errors.Is(err, context.DeadlineExceeded):
		s.Log.Error("a request of the API took too long", "request", c.id, "err", err)
		return newProblem(http.StatusServiceUnavailable, "It took too long. Whether it was done, /v1/revisions tells.")
	}
	s.Log.Error("a request of the API failed", "request", c.id, "err", err)
	return newProblem(http.StatusInternalServerError, "The hub could not do it; its log says why.")
}

// conflicting: a thing that is another than the header said is 412; whatever else came before is 409.
func conflicting(c *call, e *hub.Conflict) *Problem {
	if c.route.condition && e.Kind != "" {
		return newProblem(http.StatusPreconditionFailed, e.Reason)
	}
	return newProblem(http.StatusConflict, e.Reason)
}

// newID names a request.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return hex.EncodeToString(b[:])
}

// account logs a request and counts it. Neither has what was sent.
func (s *Server) account(c *call, status int, took time.Duration) {
	operation := "none"
	if c.route != nil {
		operation = c.route.id
	}
	s.metrics.count(operation, status, took)
	level := slog.LevelDebug
	if c.Method != http.MethodGet && c.Method != http.MethodHead || status >= http.StatusInternalServerError {
		level = slog.LevelInfo
	}
	s.Log.Log(c.Context(), level, "API", "request", c.id, "operation", operation, "path", identity.Mask(c.URL.Path), "actor", c.actor.Name,
		"status", status, "took", took)
}
