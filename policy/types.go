package policy

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// Key is what is known of one key. The zero value may use nothing.
type Key struct {
	ID      string // for records and people
	Team    *Team
	Revoked bool
	Expires time.Time // the first moment at which it is refused; zero: never
	// Networks from which it may be used; nil: all. IPv4 is never written as IPv6: unmap an address before it is looked for.
	Networks []netip.Prefix
	Labels   map[string]string // for records; nothing is decided by them

	hash          identity.Hash
	shed, explain bool
	narrow        []string // names, or prefixes with a final *; nil: all of the team's models
	limits        []Limit
}

// Allows says whether the key may ask for the model. Who may ask for an alias may have what it stands for. It looks at names
// only: see [Key.Refused] for the key itself.
func (k *Key) Allows(m *Model) bool {
	if k == nil || k.Team == nil || m == nil || !k.Team.allowed[m.Name] {
		return false
	}
	return k.narrow == nil || anyMatches(k.narrow, m.Name)
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

// Sheddable says that the key's requests are refused first when all workers are busy.
func (k *Key) Sheddable() bool { return k != nil && (k.shed || k.Team != nil && k.Team.shed) }

// MayExplain says that the key may ask how its worker was chosen, which tells of the load and the caches of all workers.
func (k *Key) MayExplain() bool { return k != nil && (k.explain || k.Team != nil && k.Team.explain) }

// Team is a group of keys with models and limits in common. The zero value may use nothing.
type Team struct {
	Name string

	models        []*Model // what it may ask for, sorted by name
	allowed       map[string]bool
	limits        []Limit
	shed, explain bool              // for all its keys
	shared        map[route][]Limit // what all its keys meet; see Snapshot.sharedLimits
}

// route is what a request asks for, and the model that it goes to; the same, but for an alias.
type route struct{ asked, model *Model }

// Model is a name that requests ask for, and the endpoint that serves it.
//
// An alias has targets in place of an endpoint: each request for it goes to one of them. The name that is asked for
// decides whether it is permitted; the target decides everything else.
type Model struct {
	Name     string
	Endpoint *Endpoint // nil: an alias
	Targets  []Target  // of an alias; none of them is an alias
	// EngineName is what the engine calls it, the name of a LoRA adapter for example; never empty but for an alias.
	EngineName string
	Tokens     Tokens
	Price      *Price // nil: nobody knows, or an alias
	Elsewhere  string // the spoke that serves it, where that is another; then it has neither endpoint nor targets

	limits []Limit
}

// Target is a model that requests for an alias go to, and its share of them.
type Target struct {
	Model  *Model
	Weight uint32 // at least 1
}

// Resolve is the model that a request goes to: m itself, or of an alias the target that a number picks, by weight. Equal
// numbers pick equal targets.
func (m *Model) Resolve(n uint64) *Model {
	if len(m.Targets) == 0 {
		return m
	}
	var sum uint64
	for _, t := range m.Targets {
		sum += uint64(t.Weight)
	}
	n %= sum
	for _, t := range m.Targets {
		if n < uint64(t.Weight) {
			return t.Model
		}
		n -= uint64(t.Weight)
	}
	return nil // not reached: n is below the sum
}

// Tokens says how tokens are counted towards limits of tokens.
type Tokens struct {
	// OutputMost caps what is reserved for an answer, whose real length nobody knows before; default 1,024.
	OutputMost int64
	// CachedWeight is what a prompt token counts that the engine had in its cache, from 0 to 1; default 1.
	CachedWeight float64
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
	OverlapWeight  float64 // weight of blocks that must be prefilled against blocks in decode; default 16
	MissWeight     float64 // what blocks that the worker lacks count beyond that; default 1
	Temperature    float64 // 0, the default: always the lowest cost
	BlockBytes     int     // bytes of a rendered prompt that stand for one KV block; default 64
	Tiers          Tiers
	ActiveWeight   float64 // what a request in flight counts, in blocks; default 0
	CreditDecay    float64 // how fast what is held counts less as the worker has more requests; default 0: not at all
	AffinityWeight float64 // what a session's last worker is preferred by, as a share of the prompt's blocks; default 0
	Busy           Busy
	Split          Split
}

// Tiers are what a block counts that is not on the device, from 0 to 1 of one that is.
type Tiers struct {
	Host, Disk, Shared float64 // defaults 0.75, 0.25, 0.5
}

// Busy are the thresholds beyond which a worker is not chosen; 0, the default: nothing is too much.
type Busy struct {
	DecodeShare   float64 // of the device's KV blocks, in use by requests; up to 1
	PrefillTokens int     // that wait to be prefilled
	Queue         int     // requests that have no first byte yet
}

// Split says when a prompt is prefilled by one worker for another, where there are workers of both kinds: when the decode
// worker lacks at least MinTokens of it, and holds less than CachedShare.
type Split struct {
	MinTokens   int     // default 512
	CachedShare float64 // default 0.9
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

	// Quotas of a period, in UTC; 0: none. Tokens are those of prompt and answer.
	TokensPerMinute                  int64
	RequestsPerDay, TokensPerDay     int64
	RequestsPerMonth, TokensPerMonth int64
}

// counter names a limit's counter. Lengths go before the parts, so that no two owners and models share a name.
func counter(l Level, owner, model string) string {
	return l.String() + "/" + strconv.Itoa(len(owner)) + ":" + owner + "/" + strconv.Itoa(len(model)) + ":" + model
}
