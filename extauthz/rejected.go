package extauthz

import (
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/usage"
)

// Refusals takes note of each request that was refused. It must not block.
type Refusals interface {
	Refuse(usage.Refusal)
}

// journal hands a refusal over. An admission that no worker took is none: it has records of its own.
func (s *Server) journal(q *question, a *answer) {
	if s.Refusals == nil || a.refusal == nil || a.unserved != "" {
		return
	}
	r := usage.Refusal{
		Alike:     usage.Alike{Code: a.refusal.Code, Status: uint32(a.refusal.Status), Reason: a.reason, Revision: a.revision},
		Admission: q.id, Operation: a.op.String(), ClientRequestID: usage.ClientRequestID(q.clientRequestID), At: s.Now(),
	}
	if a.key != nil {
		r.Key, r.Team = a.key.ID, a.key.Team.Name
	}
	if a.asked != nil { // not what a client wrote: the policy has a model of this name
		r.Model = a.asked.Name
	}
	if a.model != nil {
		if r.Model != a.model.Name {
			r.AskedModel, r.Model = r.Model, a.model.Name
		}
		r.Endpoint = a.model.Endpoint.Name
	}
	if a.binding != nil {
		r.Limit = limitName(a.binding)
	}
	s.Refusals.Refuse(r)
}

// limitName is the limit's level and kind, as in its metric, and of one that counts one model alone the model.
func limitName(b *limits.Standing) string {
	name := b.Limit.Level.String() + "/" + b.Kind.String()
	if b.Limit.Model != "" {
		name += "/" + b.Limit.Model
	}
	return name
}
