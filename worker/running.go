package worker

import (
	"context"
	"regexp"
	"sync"
	"time"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
)

// earlyMost bounds how many cuts are remembered whose requests are not here; the oldest are forgotten first.
const earlyMost = 8192

// cut is why this shim ended a request that the engine was at.
type cut struct {
	reason string // a door's word; empty: the worker shuts down
}

func (c *cut) Error() string {
	switch c.reason {
	case "":
		return "the worker is shutting down"
	case revoked:
		return "its API key was revoked"
	}
	return "the gateway ended the request (" + c.reason + ")"
}

// answer says it to a client that has got nothing yet. c may be nil: then the engine broke off by itself. A client does not
// come again with a key that is revoked, and Envoy does not try another worker.
func (c *cut) answer() *openai.Error {
	if c != nil && c.reason == revoked {
		e := openai.InvalidKey()
		e.Message = "The request was ended: " + c.Error() + "."
		return e
	}
	e := openai.Unavailable("The engine broke off before its answer.", retryAfter)
	if c != nil {
		e.Message = "The request was ended before its answer: " + c.Error() + "."
	}
	e.Code = openai.CodeUpstreamCut
	return e
}

// midway says it to a client that has got part of the answer.
func (c *cut) midway() string {
	if c == nil {
		return "The engine broke off; the answer is not whole."
	}
	return "The request was ended: " + c.Error() + "; the answer is not whole."
}

// revoked is a door's word for a key that is valid no more.
const revoked = "revoked"

var reasonForm = regexp.MustCompile(`^[a-z_]{1,32}$`)

// request is one leg of an admission in this shim.
type request struct{ admission, leg string }

// running are the requests in the shim by admission and leg, so that a door or the end of a drain can cut them. A cut may overtake
// its request: it is remembered for as long as that can still arrive.
type running struct {
	mu    sync.Mutex
	here  map[request]*entry
	early map[string]*cut
	order []earlyCut // of early, oldest first
	over  *cut       // for all that enter; nil: none
}

type entry struct {
	cancel context.CancelCauseFunc
	cut    bool
}

type earlyCut struct {
	admission string
	until     time.Time
}

func newRunning() *running {
	return &running{here: map[request]*entry{}, early: map[string]*cut{}}
}

// enter notes a request, to be ended by cancel, until leave is called. If it was cut before, leave is nil.
func (r *running) enter(q request, cancel context.CancelCauseFunc, now time.Time) (leave func(), before *cut) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now, earlyMost)
	if c := r.early[q.admission]; c != nil {
		return nil, c
	}
	e := &entry{cancel: cancel}
	r.here[q] = e
	if r.over != nil {
		cancel(r.over)
	}
	return func() { r.leave(q, e) }, nil
}

func (r *running) leave(q request, e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.here[q] == e {
		delete(r.here, q)
	}
}

// cut ends a request, or keeps it from beginning. Doors say it again and again while a request is open to them; now is
// true the first time that it ends one.
func (r *running) cut(admission, reason string, at time.Time) (now bool) {
	if !reasonForm.MatchString(reason) {
		reason = "cancelled"
	}
	c := &cut{reason}
	r.mu.Lock()
	defer r.mu.Unlock()
	found := false
	for _, leg := range []string{identity.LegMain, identity.LegPrefill} {
		if e := r.here[request{admission, leg}]; e != nil {
			e.cancel(c)
			found, now, e.cut = true, now || !e.cut, true
		}
	}
	if found {
		return now
	}
	r.forget(at, earlyMost-1)
	if r.early[admission] == nil {
		r.early[admission] = c
		r.order = append(r.order, earlyCut{admission, at.Add(contextLife)})
	}
	return false
}

// forget drops the early cuts that are over, and the oldest beyond most.
func (r *running) forget(now time.Time, most int) {
	for len(r.order) > 0 && (len(r.order) > most || now.After(r.order[0].until)) {
		delete(r.early, r.order[0].admission)
		r.order = r.order[1:]
	}
}

// cutAll ends every request, and those that enter from now on.
func (r *running) cutAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = &cut{}
	for _, e := range r.here {
		e.cancel(r.over)
	}
}
