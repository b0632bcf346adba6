package extauthz

import (
	"context"
	"slices"
	"time"

	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
)

// listModels answers /v1/models and /v1/models/ID from the policy, without a flight.
func listModels(c caller) answer {
	allowed := c.snap.Models(c.key)
	if c.arg == "" {
		names := make([]string, len(allowed))
		for i, m := range allowed {
			names[i] = m.Name
		}
		return answer{op: c.op, local: openai.ModelList(names, 0)}
	}
	model := c.snap.Model(c.arg)
	switch {
	case model == nil:
		return c.refused(openai.ModelNotFound(c.arg))
	case model.Elsewhere != "" && c.key.Allows(model):
		c.asked = model
		return c.refused(openai.ModelElsewhere(c.arg, model.Elsewhere))
	case !slices.Contains(allowed, model):
		c.asked = model
		return c.refused(openai.ModelNotAllowed(c.arg))
	}
	return answer{op: c.op, local: openai.ModelObject(model.Name, 0)}
}

// keyUsage answers /v1/usage: how the key's own limits and its team's stand. It counts nothing, and takes no flight.
func (s *Server) keyUsage(ctx context.Context, c caller) answer {
	now := s.Now()
	var out []openai.KeyLimit
	if own := c.ownLimits(); len(own) > 0 {
		standings, err := s.Limiter.Look(ctx, now, own)
		if err != nil {
			if ctx.Err() == nil {
				s.Log.Error("limiter failed: usage not told", "error", err)
			}
			return c.refused(openai.Unavailable("limits cannot be looked at, at the moment", time.Second))
		}
		for _, st := range standings {
			out = append(out, openai.KeyLimit{Level: st.Limit.Level.String(), Owner: st.Limit.Owner, Model: st.Limit.Model, Kind: st.Kind.String(),
				Max: st.Max, Used: st.Used, Remaining: st.Remaining, Reset: st.Reset, Period: st.Kind.Began(now)})
		}
	}
	return answer{op: c.op, local: openai.KeyUsageBody(c.key.ID, c.key.Team.Name, now, out)}
}

// ownLimits are those of the key and of its team, each once. What all share, the platform's and the models', is nobody's own.
func (c caller) ownLimits() (own []policy.Limit) {
	seen := map[string]bool{}
	add := func(asked, m *policy.Model) {
		for _, l := range c.snap.Limits(c.key, asked, m) {
			if (l.Level == policy.TeamLevel || l.Level == policy.KeyLevel) && !seen[l.ID] {
				seen[l.ID] = true
				own = append(own, l)
			}
		}
	}
	for _, m := range c.snap.Models(c.key) {
		for _, t := range m.Targets {
			add(m, t.Model)
		}
		if len(m.Targets) == 0 {
			add(m, m)
		}
	}
	return own
}
