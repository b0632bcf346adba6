package api

import (
	"encoding/json"
	"time"
)

// These are the messages of the API. Their tags are its manual: the handlers, openapi.json and the strict decoder are all
// made from them. json: the name, and omitempty where it may be absent; doc: what it means; enum: the words that it may be.

// Object is one thing of the policy as it stands.
type Object struct {
	Kind     string          `json:"kind" doc:"Which kind of thing it is."`
	Name     string          `json:"name" doc:"Its name; of the platform empty."`
	Revision uint64          `json:"revision" doc:"The revision that changed it last: its ETag."`
	Created  time.Time       `json:"created" doc:"When it was made."`
	Updated  time.Time       `json:"updated" doc:"When it was changed last."`
	Body     json.RawMessage `json:"body" doc:"The thing itself, with the members of a policy file."`
}

// Revision is one numbered state of everything. It never changes.
type Revision struct {
	Number     uint64    `json:"number" doc:"From 1, without gaps."`
	Digest     string    `json:"digest" doc:"Of the policy as a whole, in hex."`
	Message    string    `json:"message" doc:"Why it was made."`
	Actor      string    `json:"actor" doc:"The token that made it."`
	Role       string    `json:"role" doc:"What that token was good for."`
	RequestID  string    `json:"request_id" doc:"The request that made it, as in the hub's log."`
	At         time.Time `json:"at" doc:"When it was made."`
	Changes    int       `json:"changes" doc:"How many things it changed."`
	RollbackTo uint64    `json:"rollback_to,omitempty" doc:"The revision that it restores."`
}

// List is a page of a list. The order never changes, so that who goes on reading misses nothing that was there.
type List[T any] struct {
	Items []T    `json:"items" doc:"What is on this page."`
	Next  string `json:"next,omitempty" doc:"What to give as after for the next page; absent: this is the last one. The header Link has the whole address."`
}

// Changed answers a change of one thing.
type Changed struct {
	Object   *Object  `json:"object,omitempty" doc:"What it is now; absent where it was deleted."`
	Revision Revision `json:"revision" doc:"The revision that has the change."`
}

// NewKey is a key that is to be.
type NewKey struct {
	ID       string            `json:"id" doc:"The key's name in records and messages. Not the secret."`
	Team     string            `json:"team" doc:"The team it belongs to."`
	SHA256   string            `json:"sha256,omitempty" doc:"In hex, of a secret that exists already; leave it out, and the hub makes one."`
	Models   []string          `json:"models,omitempty" doc:"Narrows the team's models."`
	Limits   json.RawMessage   `json:"limits,omitempty" doc:"As in a policy file."`
	Expires  string            `json:"expires,omitempty" doc:"When it stops, as RFC 3339 writes it; leave it out for never."`
	Networks []string          `json:"networks,omitempty" doc:"Where it may be used from."`
	Labels   map[string]string `json:"labels,omitempty" doc:"Words for usage records."`
	Message  string            `json:"message,omitempty" doc:"Why, for the revision."`
}

// KeyMade answers who makes or rotates a key. Its secret is shown in this one answer.
type KeyMade struct {
	Key      Object   `json:"key" doc:"The key."`
	Secret   string   `json:"secret,omitempty" doc:"What clients show. Shown this once: the hub keeps its SHA-256 alone. Absent where sha256 was given, and in an answer that an Idempotency-Key repeats."`
	Repeated bool     `json:"repeated" doc:"The answer repeats one that was given before, for the same Idempotency-Key. It has no secret; who lost it makes another key."`
	Old      *Object  `json:"old,omitempty" doc:"Of a rotation: the key that it replaces."`
	Revision Revision `json:"revision" doc:"The revision that has the key."`
}

// Rotation says how a key is rotated.
type Rotation struct {
	NewID   string `json:"new_id,omitempty" doc:"The new key's id. Left out: the old one with .2, .3 and so on behind."`
	Overlap string `json:"overlap,omitempty" doc:"For how long the old key works on, such as 24h or 30m. Left out: it stops at once."`
	Message string `json:"message,omitempty" doc:"Why, for the revision."`
}

// Reason is the body of what needs no other.
type Reason struct {
	Message string `json:"message,omitempty" doc:"Why, for the revision."`
}

// Rollback says what a rollback does beyond the rule.
type Rollback struct {
	Message  string  `json:"message,omitempty" doc:"Why, for the revision."`
	Base     *uint64 `json:"base,omitempty" doc:"The latest revision that you know of: refused if there is a later one."`
	Revive   bool    `json:"revive,omitempty" doc:"Restore also keys and subjects that were revoked, deleted or shortened since. Without it none of them works again."`
	KeepKeys bool    `json:"keep_keys,omitempty" doc:"Leave all keys as they are now."`
}

// Batch is several changes that are taken whole, as one revision, or not at all.
type Batch struct {
	Message string   `json:"message,omitempty" doc:"Why, for the revision."`
	Base    *uint64  `json:"base,omitempty" doc:"The latest revision that you know of: refused if there is a later one."`
	Changes []Change `json:"changes" doc:"What is to change; each thing once."`
}

// Change is one change of a batch.
type Change struct {
	Kind       string          `json:"kind" doc:"Which kind of thing." enum:"spoke,endpoint,model,team,key,issuer,platform"`
	Name       string          `json:"name,omitempty" doc:"Its name; of the platform none."`
	Body       json.RawMessage `json:"body" doc:"All of it; null: it is deleted."`
	IfRevision *uint64         `json:"if_revision,omitempty" doc:"The revision that it must have. 0: it must not exist. Left out: whichever."`
}

// Diff is what lies between two revisions.
type Diff struct {
	From    uint64       `json:"from" doc:"The revision that before is of."`
	To      uint64       `json:"to" doc:"The revision that after is of."`
	Changes []Difference `json:"changes" doc:"In order of kind and name."`
}

// Difference is one thing that two revisions have differently.
type Difference struct {
	Kind   string          `json:"kind" doc:"Which kind of thing."`
	Name   string          `json:"name" doc:"Its name."`
	Before json.RawMessage `json:"before,omitempty" doc:"Absent: it was not there."`
	After  json.RawMessage `json:"after,omitempty" doc:"Absent: it is gone."`
}

// AuditEntry is one change in the audit log. It has no secrets.
type AuditEntry struct {
	Number    uint64          `json:"number" doc:"Growing."`
	At        time.Time       `json:"at" doc:"When."`
	Actor     string          `json:"actor" doc:"The token that did it."`
	Role      string          `json:"role" doc:"What that token was good for."`
	RequestID string          `json:"request_id" doc:"The request, as in the hub's log."`
	Action    string          `json:"action" doc:"create, update or delete; of tokens create or revoke."`
	Kind      string          `json:"kind" doc:"Which kind of thing, or token."`
	Name      string          `json:"name" doc:"Its name."`
	Revision  uint64          `json:"revision,omitempty" doc:"The revision that has the change; tokens are in none."`
	Before    json.RawMessage `json:"before,omitempty" doc:"Absent: it was not there."`
	After     json.RawMessage `json:"after,omitempty" doc:"Absent: it is gone."`
}

// NewToken is an admin token that is to be.
type NewToken struct {
	Name    string   `json:"name" doc:"Who has it, for revisions and the audit log."`
	Role    string   `json:"role" doc:"What it is good for." enum:"admin,team-owner,auditor"`
	Teams   []string `json:"teams,omitempty" doc:"Of a team owner: whose keys it may change."`
	Expires string   `json:"expires,omitempty" doc:"When it stops, as RFC 3339 writes it; leave it out for never."`
}

// Token is an admin token. Its secret is not kept.
type Token struct {
	Name     string     `json:"name" doc:"Who has it."`
	Role     string     `json:"role" doc:"What it is good for."`
	Teams    []string   `json:"teams,omitempty" doc:"Of a team owner: whose keys it may change."`
	Created  time.Time  `json:"created" doc:"When it was made."`
	Expires  *time.Time `json:"expires,omitempty" doc:"When it stops."`
	Revoked  *time.Time `json:"revoked,omitempty" doc:"When it was revoked."`
	LastUsed *time.Time `json:"last_used,omitempty" doc:"When it was used last, to the minute."`
}

// TokenMade answers who makes a token. Its secret is shown in this one answer.
type TokenMade struct {
	Token  Token  `json:"token" doc:"The token."`
	Secret string `json:"secret" doc:"What to show as Authorization: Bearer. Shown this once."`
}

// Status is how everything stands.
type Status struct {
	Revision uint64        `json:"revision" doc:"The latest; 0: there is none yet."`
	At       *time.Time    `json:"at,omitempty" doc:"When it was made."`
	Spokes   []SpokeStatus `json:"spokes" doc:"By name."`
}

// SpokeStatus is how a spoke stands.
type SpokeStatus struct {
	Name      string            `json:"name" doc:"The spoke."`
	Labels    map[string]string `json:"labels,omitempty" doc:"As it was given them."`
	Endpoints []string          `json:"endpoints" doc:"What is placed there."`
	GPUs      []GPU             `json:"gpus" doc:"What it has reported of its GPUs."`
	Reported  *time.Time        `json:"reported,omitempty" doc:"When; absent: never."`
	Doors     []Replica         `json:"doors" doc:"Its doors that are connected, or were."`
}

// GPU is what a spoke has of one type.
type GPU struct {
	Type     string `json:"type" doc:"As the spoke calls it."`
	Capacity int    `json:"capacity" doc:"How many there are."`
	Free     int    `json:"free" doc:"How many are free."`
}

// Replica is a door, and what it holds.
type Replica struct {
	Spoke        string     `json:"spoke" doc:"Where it is."`
	Door         string     `json:"door" doc:"Its name."`
	Connected    bool       `json:"connected" doc:"Whether it is now."`
	Since        time.Time  `json:"since" doc:"When it connected, or when it went away."`
	Revision     uint64     `json:"revision" doc:"What it acts on, by its own word; 0: nobody knows."`
	HeldSince    *time.Time `json:"held_since,omitempty" doc:"Since when the hub knows that."`
	Refused      uint64     `json:"refused,omitempty" doc:"The revision that it has refused. It acts on the one before."`
	Reason       string     `json:"reason,omitempty" doc:"Why it has refused it."`
	Ahead        bool       `json:"ahead" doc:"It has, because it holds a later one: the hub's database is an old copy."`
	Reported     *time.Time `json:"reported,omitempty" doc:"When it sent the report that the rest is from; absent: none yet."`
	FromDisk     bool       `json:"from_disk" doc:"It has started from its disk, and has not heard of the hub since."`
	Version      string     `json:"version,omitempty" doc:"Of its program."`
	SpoolBytes   uint64     `json:"spool_bytes" doc:"Of usage records that wait there to be shipped."`
	SpoolLost    uint64     `json:"spool_lost" doc:"Records that could not be kept since it started."`
	Limits       string     `json:"limits,omitempty" doc:"How it counts limits."`
	LimitsLocal  bool       `json:"limits_local" doc:"It counts by itself, because the spoke's store is away."`
	Workers      uint32     `json:"workers" doc:"Workers that have joined it."`
	WorkersReady uint32     `json:"workers_ready" doc:"Of those, the ones that are ready."`
	Problems     []string   `json:"problems,omitempty" doc:"What is wrong with its spools and its workers."`
	Revoked      []string   `json:"revoked,omitempty" doc:"Keys that the spoke refuses by itself, whatever the policy says."`
}

// Use is what one limit has counted in a day or a month, at all spokes together.
type Use struct {
	Level string    `json:"level" doc:"Whose limit it is." enum:"platform,model,team,key"`
	Owner string    `json:"owner" doc:"The model, the team or the key; of the platform empty."`
	Model string    `json:"model" doc:"Only requests for this one; empty: all together."`
	Kind  string    `json:"kind" doc:"Which of its quotas." enum:"requests_per_day,tokens_per_day,requests_per_month,tokens_per_month"`
	Start time.Time `json:"start" doc:"Of the period, in UTC."`
	Used  int64     `json:"used" doc:"Requests, or tokens."`
}

// Imported answers who takes over a policy file.
type Imported struct {
	Revision Revision     `json:"revision" doc:"The revision that was made; where nothing was to change or dry_run was asked for, the latest."`
	Changes  []Difference `json:"changes" doc:"What it has changed, or would."`
}
