package hub

import (
	"errors"
	"fmt"

	"github.com/spokegate/spokegate/policy"
)

// ErrNotFound: there is no such thing, revision or token.
var ErrNotFound = errors.New("not found")

// Conflict is a change that was made upon another state than there is.
type Conflict struct {
	Kind   Kind // "": it is about the commit, not about a thing
	Name   string
	Is     uint64 // the thing's revision, or the latest; 0: it does not exist
	Reason string // for people
}

func (c *Conflict) Error() string { return c.Reason }

// Invalid is a commit that would make a bad policy, or that cannot be read. Nothing of it was stored.
type Invalid struct{ Problems policy.Problems }

func (i *Invalid) Error() string { return i.Problems.Error() }

func invalid(path, format string, args ...any) error {
	return &Invalid{policy.Problems{{Path: path, Text: fmt.Sprintf(format, args...)}}}
}

// Forbidden is something that a role may not do.
type Forbidden struct{ Reason string }

func (f *Forbidden) Error() string { return f.Reason }
