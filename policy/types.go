package policy

import (
	"fmt"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// Key is what is known of one key. The zero value may use nothing.
type Key struct {
	ID      string // for records and people
	Team    *Team
	Revoked bool
	Expires time.Time // the first moment at which it is refused; zero: never

	hash   identity.Hash
	narrow map[string]bool // nil: all of the team's models
	limits []Limit
}

// Allows says whether the key may ask for the model. It looks at names only: see [Key.Refused] for the key itself.
func (k *Key) Allows(m *Model) bool {
	if k == nil || k.Team == nil || m == nil || !k.Team.allowed[m.Name] {
		return false
	}
	return k.narrow == nil || k.narrow[m.Name]
}

// Refused is why the key is refused at this moment: "revoked", "expired", or "" for a key in order.
func (k *Key) Refused(now time.Time) (reason string) {
	switch {
	case k.Revoked:
		return "revoked"
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return "expired"
	}
	return ""
}

// Team is a group of keys with models and limits in common. The zero value may use nothing.
type Team struct {
	Name string

	models  []*Model // what it may use, sorted by name
	allowed map[string]bool
	limits  map[string][]Limit // by model: the platform's, the model's and the team's own
}

// Model is a name that requests ask for, and the endpoint that serves it.
type Model struct {
	Name     string
	Endpoint *Endpoint

	limits []Limit
}

// Endpoint is a pool of workers that serve one model, which may have several names.
type Endpoint struct {
	Name string
	// AllowFields are the members of a request body that steer an engine and may pass here.
	AllowFields map[string]bool
	Routing     Routing
}

// Routing are the settings of the endpoint's router, defaults applied; see package router for the formula.
type Routing struct {
	OverlapWeight float64 // weight of blocks that must be prefilled against blocks in decode; default 1
	Temperature   float64 // 0, the default: always the lowest cost
	BlockBytes    int     // bytes of a rendered prompt that stand for one KV block; default 64
}

// Level says to whom a limit belongs.
type Level uint8

// The levels, in the order in which [Snapshot.Limits] gives them.
const (
	Platform Level = iota
	ModelLevel
	TeamLevel
	KeyLevel
)

// String is the level's word for messages, metrics and counter names.
func (l Level) String() string {
	switch l {
	case Platform:
		return "platform"
	case ModelLevel:
		return "model"
	case TeamLevel:
		return "team"
	case KeyLevel:
		return "key"
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// Limit is one limit, and the name of its counter. Each value that is not 0 must pass; at least one is not 0.
type Limit struct {
	Level Level
	Owner string // team name, key id, model name; "" for the platform
	Model string // counts only requests for this model; "" counts all together
	ID    string // names the counter: the same from revision to revision, different for every other level, owner and model

	RequestsPerSecond float64 // sustained; 0: none
	Burst             int     // how many may come at once; at least 1 where there is a rate, else 0
	Concurrency       int     // requests in flight; 0: none
}

// counter names a limit's counter. Lengths go before the parts, so that no two owners and models share a name.
func counter(l Level, owner, model string) string {
	return fmt.Sprintf("%s/%d:%s/%d:%s", l, len(owner), owner, len(model), model)
}
