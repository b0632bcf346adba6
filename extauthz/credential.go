package extauthz

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
)

// Issuers verifies the JWTs that clients bring in place of keys.
type Issuers interface {
	// Verify says whom a JWT is about. The error is an identity.ErrToken or an identity.ErrNoKeys.
	Verify(token string, now time.Time) (identity.Subject, error)
}

// Why a credential is refused, in metrics and in the log. The client is told nothing of it, but that a JWT has expired.
const (
	noCredential = "none"
	malformed    = "malformed" // no form of ours, or two that differ
	unknownKey   = "unknown"
	badToken     = "token"      // a JWT that no issuer vouches for
	noTeam       = "token_team" // a JWT that names no team that its issuer may name
	noIssuerKeys = "issuer_keys"
	wrongNetwork = "network"
	// And what policy.Key.Refused says.
)

// prove finds the key that the request's credential is, or stands for. With a reason it is refused; the key is given all the
// same where it is known, and for a JWT what is wrong with it.
func (s *Server) prove(snap *policy.Snapshot, q question, now time.Time) (k *policy.Key, reason string, wrong error) {
	secret, reason := q.credential()
	if reason != "" {
		return nil, reason, nil
	}
	switch h, ok := identity.ParseKey(secret); {
	case ok:
		if k = snap.Key(h); k == nil {
			return nil, unknownKey, nil
		}
	case s.Issuers == nil || strings.Count(secret, ".") != 2:
		return nil, malformed, nil
	default:
		sub, err := s.Issuers.Verify(secret, now)
		if errors.Is(err, identity.ErrNoKeys) {
			return nil, noIssuerKeys, err
		}
		if err != nil {
			return nil, badToken, err
		}
		if k = subjectKey(snap, sub); k == nil {
			return nil, noTeam, nil
		}
	}
	return k, k.Refused(now), nil
}

// subjectKey is the key that a verified JWT stands for; nil: the policy has none.
func subjectKey(snap *policy.Snapshot, sub identity.Subject) *policy.Key {
	for _, i := range snap.Issuers() {
		if i.Name == sub.Issuer {
			return snap.Subject(i, sub.Subject, sub.Team, sub.Models)
		}
	}
	return nil
}

// disproved is the answer to a credential that is refused. It is the same for all reasons, but where the client cannot help it,
// and for a JWT whose only fault is its age: no guess is one. Held says that it has a place among the answers that are held back.
func (s *Server) disproved(q question, reason string, wrong error, now time.Time) (refusal *openai.Error, held bool) {
	s.metrics.credentials.WithLabelValues(reason).Inc()
	if reason == noIssuerKeys {
		return openai.Unavailable("the keys of the token's issuer are not known yet", time.Second), false
	}
	refusal = openai.InvalidKey()
	if errors.Is(wrong, identity.ErrTokenExpired) {
		refusal = openai.TokenExpired()
	}
	retry := s.guesses.count(sourceOf(q.address()), now)
	switch {
	case retry == 0:
		return refusal, false
	case s.guesses.enter():
		s.metrics.slowed.WithLabelValues("held").Inc()
		return refusal, true
	}
	s.metrics.slowed.WithLabelValues("refused").Inc()
	return openai.TooManyFailedKeys(retry), false
}

// within says whether the address lies in one of the networks. No networks are all.
func within(networks []netip.Prefix, a netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return networks == nil
}
