package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Life is how long a context may wait between the door and the worker, and Skew how far their clocks may be apart.
const (
	Life = 60 * time.Second
	Skew = 5 * time.Second
)

// Context is what a door has verified of one request. It travels as a JWT (EdDSA), with the admission as its id and the
// endpoint as its audience; or, to workers that share a Secret with the door, as the same claims with a MAC for each of them: see
// MintFor. Both are checked for the same, and are used up once.
//
// The JWT is written and read by hand, since it is on every request's path: any JWT library reads what Mint writes, and Verify
// reads what any writes of the same claims. A property test holds both against golang-jwt.
type Context struct {
	Admission string // id of the admission
	Door      string // that made it: its Minter's name, whatever stands here before
	Key       string // the key's id in the policy, never the secret
	Team      string
	Model     string
	Endpoint  string
	Revision  uint64 // of the policy that admitted it
	// Asked is the name in the body, and EngineName the one that the engine knows, where they are others than Model.
	Asked, EngineName string
	// Leg is the part of the work that the context is for: LegMain, or LegPrefill at another worker before it. Each leg has a
	// context of its own, which is good for no other.
	Leg string
	// Worker is the address, ip:port, of the one worker that the context is for; empty: any of the endpoint. The verifier does
	// not know where it runs: that is the worker's to compare.
	Worker string
	// Body is the BodyDigest of what was admitted; empty: the context is bound to no body.
	Body string
}

// Legs of one admission.
const (
	LegMain    = ""
	LegPrefill = "prefill"
)

// digestWhole bounds how much of a body is hashed. SHA-256 of a prompt of 330 KB would cost a sixth of all that its request
// costs otherwise; of this much it is a hundredth.
const digestWhole = 16 << 10

// BodyDigest binds a context to a request's body, without its content-encoding: the SHA-256 of its length and of all of it,
// or, of one above 16 KiB, of its first and its last 8 KiB. Whoever holds such a context can still change what lies between.
func BodyDigest(body []byte) string {
	h := sha256.New()
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(body)))
	h.Write(size[:])
	if len(body) > digestWhole {
		h.Write(body[:digestWhole/2])
		body = body[len(body)-digestWhole/2:]
	}
	h.Write(body)
	var sum [sha256.Size]byte
	return base64.RawURLEncoding.EncodeToString(h.Sum(sum[:0]))
}

// Kinds of refusal, for metrics and answers.
var (
	ErrInvalid  = errors.New("the trusted context is missing, malformed or not made by a door of this spoke")
	ErrExpired  = errors.New("the trusted context has expired or is not valid yet")
	ErrAudience = errors.New("the trusted context is for another endpoint")
	ErrReplayed = errors.New("the trusted context was used before")
	ErrLeg      = errors.New("the trusted context is for another leg of its request")
	// ErrUnknownKey is a kind of ErrInvalid: of a stranger, of a door that this worker has not joined, or by MAC for another worker.
	ErrUnknownKey = fmt.Errorf("%w: its key is not known", ErrInvalid)
)
