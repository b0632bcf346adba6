package identity

import (
	"crypto/ed25519"
	"encoding/base64"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Verifier checks contexts at one worker. It remembers each admission, by its leg, for as long as its context could be used again, and
// up to as long once more: its memory is bounded by the requests of twice Life + 2 × Skew.
type Verifier struct {
	endpoint string

	mu      sync.Mutex
	keys    map[string]ed25519.PublicKey // by id
	secrets map[string]Secret            // by id
	seen    map[use]struct{}             // of both generations
	young   []use                        // seen since turned
	old     []use                        // seen in the generation before
	turn    time.Time                    // when young becomes old
}

// use of a context, which is to be the only one.
type use struct{ admission, leg string }

// maxContext is the longest context that is looked at, in bytes.
const maxContext = 8 << 10

// NewVerifier accepts contexts for one endpoint, signed with the keys that SetKey names or made with the secrets of SetSecret; none
// at first.
func NewVerifier(endpoint string) *Verifier {
	return &Verifier{endpoint: endpoint, keys: map[string]ed25519.PublicKey{}, secrets: map[string]Secret{}, seen: map[use]struct{}{}}
}

// SetKey trusts a key by its id, see [DoorKey], in place of the one that had this id before.
func (v *Verifier) SetKey(id string, k ed25519.PublicKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys[id] = k
}

// RemoveKey trusts a key no more.
func (v *Verifier) RemoveKey(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.keys, id)
}

// Verify answers what the door vouched for, for the main leg. The error is ErrInvalid, which may be an ErrUnknownKey,
// ErrExpired, ErrAudience, ErrLeg or ErrReplayed; a second use of an admission is refused whatever its signature's age.
func (v *Verifier) Verify(token string, now time.Time) (Context, error) {
	return v.VerifyLeg(token, LegMain, now)
}

// VerifyLeg is Verify for one leg, each of which an admission uses once.
func (v *Verifier) VerifyLeg(token, leg string, now time.Time) (Context, error) {
	payload, err := v.vouched(token)
	if err != nil {
		return Context{}, err
	}
	c, err := parseClaims(payload)
	switch {
	case err != nil:
		return Context{}, ErrInvalid
	case !c.valid(now):
		return Context{}, ErrExpired
	case !slices.Contains(c.audience, v.endpoint):
		return Context{}, ErrAudience
	case c.Admission == "":
		return Context{}, ErrInvalid
	case c.Leg != leg:
		return Context{}, ErrLeg
	case !v.first(use{strings.Clone(c.Admission), leg}, now): // or the whole context would be kept with it
		return Context{}, ErrReplayed
	}
	c.Endpoint = v.endpoint
	return c.Context, nil
}

// vouched gives the payload of a token that a known key has signed, or a shared secret made.
func (v *Verifier) vouched(token string) (payload string, err error) {
	head, rest, _ := strings.Cut(token, ".")
	body, tail, ok := strings.Cut(rest, ".")
	if !ok || len(token) > maxContext {
		return "", ErrInvalid
	}
	if head == macHead {
		err = v.tagged(body, tail)
	} else {
		err = v.signed(head, token[:len(head)+1+len(body)], tail)
	}
	if err != nil {
		return "", err
	}
	text, ok := decode(nil, body)
	if !ok {
		return "", ErrInvalid
	}
	return string(text), nil
}

// signed says what is wrong with the signature of a JWT.
func (v *Verifier) signed(head, text, tail string) error {
	var space [ed25519.SignatureSize + 2]byte
	signature, ok := decode(space[:0], tail)
	if !ok || len(signature) != ed25519.SignatureSize {
		return ErrInvalid
	}
	id, ok := keyID(head)
	if !ok {
		return ErrInvalid
	}
	k := v.key(id)
	if k == nil {
		return ErrUnknownKey
	}
	if len(k) != ed25519.PublicKeySize || !ed25519.Verify(k, []byte(text), signature) {
		return ErrInvalid
	}
	return nil
}

func (v *Verifier) key(id string) ed25519.PublicKey {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.keys[id]
}

var encoding = base64.RawURLEncoding.Strict()

// decode reads base64url in its one form. The library skips line breaks; here they are wrong.
func decode(b []byte, s string) ([]byte, bool) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, false
	}
	b, err := encoding.AppendDecode(b, []byte(s))
	return b, err == nil
}

// keyID reads the header: EdDSA, a key, and nothing that would change what the signature means.
func keyID(head string) (id string, ok bool) {
	text, ok := decode(nil, head)
	if !ok {
		return "", false
	}
	alg, typ := "", "JWT"
	f := flat{text: string(text)}
	err := f.members(func(name string) (err error) {
		switch name {
		case "alg":
			alg, err = f.string()
		case "kid":
			id, err = f.string()
		case "typ":
			typ, err = f.string()
		default:
			err = errJSON
		}
		return err
	})
	return id, err == nil && alg == "EdDSA" && typ == "JWT"
}

// claims are a context as it was read, not judged yet.
type claims struct {
	Context
	audience                []string
	expires, issued, before uint64 // exp, iat and nbf, in seconds since 1970; 0: none
}

func parseClaims(payload string) (c claims, err error) {
	f := flat{text: payload}
	err = f.members(func(name string) (err error) {
		switch name {
		case "aud":
			c.audience, err = f.strings()
		case "exp":
			c.expires, err = f.integer()
		case "iat":
			c.issued, err = f.integer()
		case "nbf":
			c.before, err = f.integer()
		case "rev":
			c.Revision, err = f.integer()
		case "iss":
			c.Door, err = f.string()
		case "jti":
			c.Admission, err = f.string()
		case "key":
			c.Key, err = f.string()
		case "team":
			c.Team, err = f.string()
		case "model":
			c.Model, err = f.string()
		case "asked":
			c.Asked, err = f.string()
		case "body":
			c.Body, err = f.string()
		case "leg":
			c.Leg, err = f.string()
		case "worker":
			c.Worker, err = f.string()
		case "engine":
			c.EngineName, err = f.string()
		default:
			err = f.skip()
		}
		return err
	})
	return c, err
}

// valid says whether now is within the times of the claims, give or take Skew. Without an end there is no validity.
func (c claims) valid(now time.Time) bool {
	const most = math.MaxInt64 / 4 // beyond is no time
	if c.expires == 0 || max(c.expires, c.issued, c.before) > most {
		return false
	}
	early, late := now.Add(Skew), now.Add(-Skew)
	return late.Before(time.Unix(int64(c.expires), 0)) &&
		!early.Before(time.Unix(int64(c.issued), 0)) && !early.Before(time.Unix(int64(c.before), 0))
}

// first says whether the use is. Two generations, each as long as a context can live, make forgetting cheap: what falls out
// has expired.
func (v *Verifier) first(u use, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now.After(v.turn) {
		for _, old := range v.old {
			delete(v.seen, old)
		}
		v.old, v.young = v.young, nil
		v.turn = now.Add(Life + 2*Skew)
	}
	if _, dup := v.seen[u]; dup {
		return false
	}
	v.seen[u] = struct{}{}
	v.young = append(v.young, u)
	return true
}
