package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Life is how long a context may wait between the door and the worker, and Skew how far their clocks may be apart.
const (
	Life = 60 * time.Second
	Skew = 5 * time.Second
)

// Context is what a door has verified of one request. It travels as a JWT (EdDSA), with the admission as its id and the
// endpoint as its audience.
type Context struct {
	Admission string // id of the admission
	Key       string // the key's id in the policy, never the secret
	Team      string
	Model     string
	Endpoint  string
	Revision  uint64 // of the policy that admitted it
	// Asked is the name in the body, and EngineName the one that the engine knows, where they are others than Model.
	Asked, EngineName string
}

// claims are the JWT's names for a Context.
type claims struct {
	jwt.RegisteredClaims
	Key      string `json:"key"`
	Team     string `json:"team"`
	Model    string `json:"model"`
	Revision uint64 `json:"rev"`
}

// Minter signs contexts for one door. Its key lives in memory only: a door that restarts has another.
type Minter struct {
	door    string
	private ed25519.PrivateKey
	public  ed25519.PublicKey
}

// NewMinter makes a door's key pair. door is the key id in every context.
func NewMinter(door string) (*Minter, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the door's key: %w", err)
	}
	return &Minter{door: door, private: private, public: public}, nil
}

// Door is the key id under which verifiers know this minter.
func (m *Minter) Door() string { return m.door }

// PublicKey is what a verifier needs.
func (m *Minter) PublicKey() ed25519.PublicKey { return m.public }

// Mint signs c, valid from now (less Skew) for Life.
func (m *Minter) Mint(c Context, now time.Time) (string, error) {
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			ID:        c.Admission,
			Audience:  jwt.ClaimStrings{c.Endpoint},
			Issuer:    m.door,
			IssuedAt:  jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(now.Add(Life)),
		},
		Key: c.Key, Team: c.Team, Model: c.Model, Revision: c.Revision,
	})
	t.Header["kid"] = m.door
	return t.SignedString(m.private)
}

// Kinds of refusal, for metrics and answers.
var (
	ErrInvalid  = errors.New("the trusted context is missing, malformed or not signed by a door of this spoke")
	ErrExpired  = errors.New("the trusted context has expired or is not valid yet")
	ErrAudience = errors.New("the trusted context is for another endpoint")
	ErrReplayed = errors.New("the trusted context was used before")
)
