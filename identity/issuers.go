package identity

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// maxToken is the longest JWT of a client that is looked at, in bytes.
	maxToken = 16 << 10
	// clientSkew is how far the clock of an issuer may be from ours.
	clientSkew = 30 * time.Second
	maxSubject = 1024 // bytes of a claim sub
	maxModels  = 1024 // names in the claim of models
)

// Kinds of refusal of a client's JWT. The text of an error says more; it holds nothing that the client wrote.
var (
	ErrToken = errors.New("the token is refused") // the client's fault
	// ErrTokenExpired is the ErrToken of a token that was good once: a key of its issuer did sign it.
	ErrTokenExpired = fmt.Errorf("%w: expired", ErrToken)
	// ErrNoKeys: the issuer's keys were never read, so nobody can tell. It is ours to mend.
	ErrNoKeys = errors.New("the keys of the token's issuer are not known yet")
)

// IssuerConfig says whose JWTs are taken for keys.
type IssuerConfig struct {
	Name        string // unique; for records and counters
	Issuer      string // what the claim iss must be
	Audience    string // what must be among the claim aud
	JWKSFile    string // where the keys are: a file, or else
	JWKSURL     string // an https address
	TeamClaim   string // names the team
	ModelsClaim string // lists models; empty: none does
}

// Subject is whom a verified JWT is about.
type Subject struct {
	Issuer  string // the name of its IssuerConfig
	Subject string // the claim sub, never empty
	Team    string // never empty
	// Models are the names that a claim lists; an empty list is none at all, nil: no claim lists any.
	Models  []string
	Expires time.Time
}

// Issuers verifies the JWTs that clients bring as credentials, with golang-jwt. It trusts what SetIssuers names, with the keys
// that SetKeys brings; who reads the keys is not its business. What was verified is remembered until it expires, so that a
// signature is checked once. The zero value knows no issuer and refuses all.
type Issuers struct {
	mu     sync.RWMutex
	list   []*issuer
	recent tokenCache
}

// issuer is one issuer with its keys; a new one takes its place when either changes, and what the old one verified is forgotten.
type issuer struct {
	IssuerConfig
	keys *KeySet // nil: never read
	// missing gets one when a token names a key that is not in the set.
	missing chan struct{}
}

// SetIssuers trusts these issuers from now on, and no others. One that is the same as before keeps its keys.
func (s *Issuers) SetIssuers(list []IssuerConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.list
	s.list = nil
	for _, c := range list {
		i := &issuer{IssuerConfig: c, missing: make(chan struct{}, 1)}
		for _, old := range before {
			if old.IssuerConfig == c {
				i = old
			}
		}
		s.list = append(s.list, i)
	}
}

// SetKeys gives an issuer its keys, in place of those before. One that is not trusted any more is passed over.
func (s *Issuers) SetKeys(c IssuerConfig, keys *KeySet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.Clone(s.list) // Verify may read the one before
	for n, i := range s.list {
		if i.IssuerConfig == c {
			s.list[n] = &issuer{IssuerConfig: c, keys: keys, missing: i.missing}
		}
	}
}

// Missing gets one when a token named a key that the issuer's set does not have; nil for an issuer that is not trusted.
func (s *Issuers) Missing(c IssuerConfig) <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, i := range s.list {
		if i.IssuerConfig == c {
			return i.missing
		}
	}
	return nil
}

// Verify says whom a JWT is about. The error is an ErrToken or an ErrNoKeys.
func (s *Issuers) Verify(token string, now time.Time) (Subject, error) {
	if len(token) > maxToken {
		return Subject{}, refuse("longer than %d bytes", maxToken)
	}
	s.mu.RLock()
	list := s.list
	s.mu.RUnlock()
	if len(list) == 0 {
		return Subject{}, refuse("no issuer is trusted")
	}
	sum := sha256.Sum256([]byte(token))
	if v, ok := s.recent.get(sum); ok && slices.Contains(list, v.by) {
		if !now.Before(v.until) {
			return Subject{}, ErrTokenExpired
		}
		return v.subject, nil
	}
	v, err := verifyToken(list, token, now)
	if err != nil {
		return Subject{}, err
	}
	s.recent.put(sum, v)
	return v.subject, nil
}

// algorithms are those with a private and a public key: with any other, who can verify can sign.
var algorithms = append(slices.Clone(rsaAlgs), "ES256", "ES384", "ES512", "EdDSA")

// verified is what a token was found to be.
type verified struct {
	subject Subject
	until   time.Time // the end of the token, and of clientSkew
	by      *issuer
}

func verifyToken(list []*issuer, token string, now time.Time) (v verified, err error) {
	claims := jwt.MapClaims{}
	parser := jwt.NewParser(jwt.WithValidMethods(algorithms), jwt.WithStrictDecoding(), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithLeeway(clientSkew), jwt.WithTimeFunc(func() time.Time { return now }))
	var refused error // what golang-jwt would wrap in words of its own
	_, err = parser.ParseWithClaims(token, claims, func(t *jwt.Token) (k any, err error) {
		// Not verified yet: what is read here only says which key must have signed.
		if v.by, err = issuerOf(list, claims); err == nil {
			k, err = v.by.key(t)
		}
		refused = err
		return k, err
	})
	if refused != nil {
		return verified{}, refused
	}
	if err != nil {
		return verified{}, kindOf(err)
	}
	if v.subject, err = v.by.subject(claims); err != nil {
		return verified{}, err
	}
	v.until = v.subject.Expires.Add(clientSkew)
	return v, nil
}

// issuerOf is the one issuer that a token's claims name. Several may have one claim iss, and then differ in the audience.
func issuerOf(list []*issuer, claims jwt.MapClaims) (*issuer, error) {
	iss, err := claims.GetIssuer()
	if err != nil || iss == "" {
		return nil, refuse("no issuer")
	}
	audience, err := claims.GetAudience()
	if err != nil {
		return nil, refuse("no audience")
	}
	var found *issuer
	known := false
	for _, i := range list {
		if i.Issuer != iss {
			continue
		}
		known = true
		if !slices.Contains(audience, i.Audience) {
			continue
		}
		if found != nil {
			return nil, refuse("issuers %s and %s both take it", found.Name, i.Name)
		}
		found = i
	}
	switch {
	case !known:
		return nil, refuse("unknown issuer")
	case found == nil:
		return nil, refuse("for another audience")
	}
	return found, nil
}

// key is what must have signed a token. Keys and addresses that the token brings along (jwk, jku, x5c, x5u) are not looked at.
func (i *issuer) key(t *jwt.Token) (any, error) {
	if _, there := t.Header["crit"]; there {
		return nil, refuse("it has critical extensions")
	}
	id, isText := t.Header["kid"].(string)
	if _, there := t.Header["kid"]; there && (!isText || id == "") {
		return nil, refuse("its kid is not a text")
	}
	if i.keys == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoKeys, i.Name)
	}
	if k := i.keys.find(id, t.Method.Alg()); k != nil {
		return k, nil
	}
	select {
	case i.missing <- struct{}{}:
	default:
	}
	return nil, refuse("issuer %s has no such key", i.Name)
}

// subject reads the claims of a token whose signature and times are good.
func (i *issuer) subject(claims jwt.MapClaims) (Subject, error) {
	out := Subject{Issuer: i.Name}
	var ok bool
	if out.Subject, ok = claims["sub"].(string); !ok || out.Subject == "" || len(out.Subject) > maxSubject || !utf8.ValidString(out.Subject) {
		return Subject{}, refuse("no subject")
	}
	if out.Team, ok = claims[i.TeamClaim].(string); !ok || out.Team == "" {
		return Subject{}, refuse("the claim of issuer %s for the team names none", i.Name)
	}
	if value, there := claims[i.ModelsClaim]; there && i.ModelsClaim != "" {
		if out.Models, ok = modelNames(value); !ok {
			return Subject{}, refuse("the claim of issuer %s for models lists none", i.Name)
		}
	}
	end, err := claims.GetExpirationTime()
	if err != nil || end == nil {
		return Subject{}, refuse("no end")
	}
	out.Expires = end.Time
	return out, nil
}

// modelNames reads a list of names, or a text of names with spaces between, as the claim scope is one. It is never nil.
func modelNames(value any) (names []string, ok bool) {
	switch v := value.(type) {
	case string:
		names = append([]string{}, strings.Fields(v)...)
	case []any:
		names = []string{}
		for _, e := range v {
			name, isText := e.(string)
			if !isText {
				return nil, false
			}
			names = append(names, name)
		}
	default:
		return nil, false
	}
	return names, len(names) <= maxModels
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrToken, fmt.Sprintf(format, args...))
}

// kindOf turns golang-jwt's word into ours: its own texts may repeat what the token says.
func kindOf(err error) error {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return refuse("not a JWT")
	case errors.Is(err, jwt.ErrTokenExpired):
		return ErrTokenExpired
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return refuse("not valid yet")
	case errors.Is(err, jwt.ErrTokenInvalidClaims), errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return refuse("no end, or times that are none")
	}
	return refuse("its signature or algorithm is wrong")
}
