package hub

import (
	"context"
	"encoding/json"
	"time"
)

// Kind is a kind of thing.
type Kind string

// The kinds of things. There is one platform, and its name is "".
const (
	KindSpoke    Kind = "spoke"
	KindEndpoint Kind = "endpoint"
	KindModel    Kind = "model"
	KindTeam     Kind = "team"
	KindKey      Kind = "key"
	KindIssuer   Kind = "issuer"
	KindPlatform Kind = "platform"
)

// Kinds are all kinds, in the order in which a diff has them.
var Kinds = []Kind{KindSpoke, KindEndpoint, KindModel, KindTeam, KindKey, KindIssuer, KindPlatform}

// Object is a thing as it is now.
type Object struct {
	Kind     Kind
	Name     string
	Revision uint64 // that changed it last: its ETag
	// Body has the members of the policy file's element, sorted by name; of an endpoint also spoke, placement, placed and
	// deployment, of a spoke name and labels.
	Body             json.RawMessage
	Created, Updated time.Time
}

// Change is one change of a thing.
type Change struct {
	Kind Kind
	Name string
	Body json.RawMessage // whole; nil: delete
	// IfRevision is the revision that the thing must have: nil: whichever; 0: it must not exist.
	IfRevision *uint64
}

// Role says what somebody may do.
type Role string

// The roles. The zero value may do nothing.
const (
	RoleAdmin     Role = "admin"      // everything
	RoleTeamOwner Role = "team-owner" // the keys of their teams; sees models and their own teams
	RoleAuditor   Role = "auditor"    // sees everything, changes nothing
)

// Actor is who asks.
type Actor struct {
	Name  string // for revisions and the audit log
	Role  Role
	Teams []string // of a team owner
}

// Commit is a change, or a batch that is taken whole or not at all, and who wants it. Methods that make the changes
// themselves (CreateKey, Rollback and so on) want it without Changes.
type Commit struct {
	Actor     Actor
	Message   string // why, for people: up to 1,000 characters
	RequestID string // for the audit log
	Changes   []Change
	// IdempotencyKey, where it is not empty, makes a second commit of the same content by the same actor answer what the first
	// did, for at least [KeepAnswers]. Other content under the same key is a [*Conflict].
	IdempotencyKey string
	// Base is the revision that the commit was made upon; nil: whichever. It is refused if there is a later one.
	Base *uint64
}

// KeepAnswers is how long an idempotency key is remembered, at least.
const KeepAnswers = 24 * time.Hour

// Revision is one state of everything. It never changes.
type Revision struct {
	Number     uint64 // from 1, without gaps
	Digest     string // of the policy as a whole, in hex: see policy.Cut.Digest
	Message    string
	Actor      string
	Role       Role
	RequestID  string
	At         time.Time
	Changes    int    // how many things it changed
	RollbackTo uint64 // the revision that it restores; 0: none
}

// Page is a part of a list, which is in order of name.
type Page struct {
	After string // names behind this one
	Limit int    // up to [MaxPage]; 0: 100
	Team  string // of keys: only this team's
}

// MaxPage bounds a page.
const MaxPage = 1000

// Difference is one thing that two revisions have differently.
type Difference struct {
	Kind          Kind
	Name          string
	Before, After json.RawMessage // nil: it is not there
}

// Diff is what lies between two revisions.
type Diff struct {
	From, To uint64
	Changes  []Difference // in order of kind and name
}

// RollbackOptions say what a rollback does beyond the rule.
type RollbackOptions struct {
	// Revive restores keys and subjects exactly as they were, also those that were revoked or deleted since, or whose expiry
	// was brought forward. Without it none of them works again.
	Revive bool
	// KeepKeys leaves all keys as they are now.
	KeepKeys bool
}

// AuditEntry is one change in the audit log. It holds no secrets.
type AuditEntry struct {
	Number        uint64 // growing
	At            time.Time
	Actor         string
	Role          Role
	RequestID     string
	Action        string // create, update, delete; of tokens: create, revoke
	Kind          Kind   // also "token"
	Name          string
	Revision      uint64          // 0: it made none
	Before, After json.RawMessage // nil: it was not, or is no longer, there
}

// AuditQuery chooses entries, the newest first.
type AuditQuery struct {
	Before uint64 // numbers below this; 0: all
	Limit  int    // up to [MaxPage]; 0: 100
	Kind   Kind   // "": all
	Name   string // of this thing; "": of all
	Actor  string // "": whose ever
}

// KeySpec is a key that is to be.
type KeySpec struct {
	ID       string
	Team     string
	SHA256   string // in hex, of a secret that exists already; "": the hub makes one
	Models   []string
	Limits   json.RawMessage // as in the policy file; nil: none
	Expires  time.Time       // zero: never
	Networks []string
	Labels   map[string]string
}

// KeyMade is a key that has been made or rotated.
type KeyMade struct {
	Object   Object
	Secret   string // shown once: "" for an imported key, and where an idempotency key answers again
	Revision Revision
	Old      *Object // of a rotation: the key that it replaces
}

// Token is an admin token; its secret is not kept.
type Token struct {
	Name     string
	Role     Role
	Teams    []string
	Created  time.Time
	Expires  time.Time // zero: never
	Revoked  time.Time // zero: it is not
	LastUsed time.Time // to the minute; zero: never
}

// API is what the hub does for those who ask over a protocol: [Hub] is it.
type API interface {
	Head() Revision // the latest; Number 0: there is none
	Commit(ctx context.Context, c Commit) (Revision, error)
	Get(ctx context.Context, who Actor, kind Kind, name string) (Object, error)
	// List gives a page, and whether there is more behind it.
	List(ctx context.Context, who Actor, kind Kind, page Page) (list []Object, more bool, err error)
	// Revisions gives those below a number, the newest first; 0: from the latest.
	Revisions(ctx context.Context, who Actor, before uint64, limit int) ([]Revision, error)
	Revision(ctx context.Context, who Actor, number uint64) (Revision, error)
	// GetAt is a thing as it was at a revision.
	GetAt(ctx context.Context, who Actor, kind Kind, name string, revision uint64) (Object, error)
	Diff(ctx context.Context, who Actor, from, to uint64) (Diff, error)
	Rollback(ctx context.Context, c Commit, to uint64, options RollbackOptions) (Revision, error)
	Audit(ctx context.Context, who Actor, q AuditQuery) ([]AuditEntry, error)

	CreateKey(ctx context.Context, c Commit, spec KeySpec) (KeyMade, error)
	// RotateKey makes a key with a new id (newID, or id.2, id.3 and so on) that has all that the old one has; the old one
	// works until the overlap is over, or its own expiry where that is sooner.
	RotateKey(ctx context.Context, c Commit, id, newID string, overlap time.Duration) (KeyMade, error)
	RevokeKey(ctx context.Context, c Commit, id string) (Object, Revision, error)

	CreateToken(ctx context.Context, c Commit, t Token) (Token, string, error)
	ListTokens(ctx context.Context, who Actor) ([]Token, error)
	RevokeToken(ctx context.Context, c Commit, name string) error
	// Authenticate says whose token it is; an error says that nobody knows.
	Authenticate(ctx context.Context, secret string) (who Actor, ok bool, err error)

	// Import commits a policy file: all that it has, and with Replace nothing else.
	Import(ctx context.Context, c Commit, i Import) (Revision, error)
	// PreviewImport says what an import would change, and changes nothing.
	PreviewImport(ctx context.Context, c Commit, i Import) (Diff, error)

	// Spokes tells what the spokes have reported.
	Spokes(ctx context.Context, who Actor) ([]SpokeStatus, error)
	// Render is a spoke's deployment as YAML, from the templates of its endpoints' stacks.
	Render(ctx context.Context, who Actor, spoke string) ([]byte, error)
}

// Import is a policy file to take over.
type Import struct {
	File    string // what messages call it
	YAML    []byte
	Spoke   string // where its endpoints run; made if it is not there. "": they are placed
	Replace bool   // delete what the file does not have, but for spokes
	// Revive takes the file's word also of keys and subjects that are revoked, and of when keys expire: else they stay so.
	Revive bool
}

// SpokeReport is what a spoke says of itself.
type SpokeReport struct {
	GPUs    []GPU
	Version string
}

// GPU is what a spoke has of one type.
type GPU struct {
	Type     string `json:"type"`
	Capacity int    `json:"capacity"`
	Free     int    `json:"free"`
}

// SpokeStatus is a spoke and its last report.
type SpokeStatus struct {
	Name      string
	Labels    map[string]string
	Report    SpokeReport
	At        time.Time // of the report; zero: none yet
	Endpoints []string  // that are placed there
}
