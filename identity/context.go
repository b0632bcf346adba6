package identity

import (
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
// endpoint as its audience.
//
// The JWT is written and read by hand, since it is on every request's path: any JWT library reads what Mint writes, and Verify
// reads what any writes of the same claims. A property test holds both against golang-jwt.
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

// Kinds of refusal, for metrics and answers.
var (
	ErrInvalid  = errors.New("the trusted context is missing, malformed or not signed by a door of this spoke")
	ErrExpired  = errors.New("the trusted context has expired or is not valid yet")
	ErrAudience = errors.New("the trusted context is for another endpoint")
	ErrReplayed = errors.New("the trusted context was used before")
	// ErrUnknownKey is a kind of ErrInvalid: of a stranger, or of a door that this worker has not joined.
	ErrUnknownKey = fmt.Errorf("%w: its key is not known", ErrInvalid)
)
