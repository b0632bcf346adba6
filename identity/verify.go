package identity

import (
	"crypto/ed25519"
	"errors"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Verifier checks contexts at one worker. It remembers each admission for as long as its context could be used again, and
// up to as long once more: its memory is bounded by the requests of twice Life + 2 × Skew.
type Verifier struct {
	endpoint string

	mu    sync.Mutex
	keys  map[string]ed25519.PublicKey // by door
	seen  map[string]struct{}          // admissions of both generations
	young []string                     // seen since turned
	old   []string                     // seen in the generation before
	turn  time.Time                    // when young becomes old
}

// NewVerifier accepts contexts for one endpoint, signed by the doors that SetKey names; none at first.
func NewVerifier(endpoint string) *Verifier {
	return &Verifier{endpoint: endpoint, keys: map[string]ed25519.PublicKey{}, seen: map[string]struct{}{}}
}

// SetKey trusts a door, in place of the key it had before.
func (v *Verifier) SetKey(door string, k ed25519.PublicKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys[door] = k
}

// RemoveKey trusts a door no more.
func (v *Verifier) RemoveKey(door string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.keys, door)
}

// Verify answers what the door vouched for. The error is ErrInvalid, ErrExpired, ErrAudience or ErrReplayed; a second
// use of an admission is refused whatever its signature's age.
func (v *Verifier) Verify(token string, now time.Time) (Context, error) {
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, v.key,
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithAudience(v.endpoint),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(Skew),
		jwt.WithTimeFunc(func() time.Time { return now }),
	)
	switch {
	case errors.Is(err, jwt.ErrTokenExpired), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return Context{}, ErrExpired
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return Context{}, ErrAudience
	case err != nil, c.ID == "":
		return Context{}, ErrInvalid
	}
	if !v.first(c.ID, now) {
		return Context{}, ErrReplayed
	}
	return Context{Admission: c.ID, Key: c.Key, Team: c.Team, Model: c.Model, Endpoint: v.endpoint, Revision: c.Revision}, nil
}

func (v *Verifier) key(t *jwt.Token) (any, error) {
	door, _ := t.Header["kid"].(string)
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.keys[door]; k != nil {
		return k, nil
	}
	return nil, ErrInvalid
}

// first says whether the admission is new. Two generations, each as long as a context can live, make forgetting cheap:
// what falls out has expired.
func (v *Verifier) first(admission string, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now.After(v.turn) {
		for _, id := range v.old {
			delete(v.seen, id)
		}
		v.old, v.young = v.young, nil
		v.turn = now.Add(Life + 2*Skew)
	}
	if _, dup := v.seen[admission]; dup {
		return false
	}
	v.seen[admission] = struct{}{}
	v.young = append(v.young, admission)
	return true
}
