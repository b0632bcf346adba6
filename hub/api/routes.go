package api

import (
	"encoding/json"
	"reflect"
	"sync"

	"github.com/spokegate/spokegate/hub"
)

// route is one operation of the API: what openapi.json says of it, and what is done.
type route struct {
	method, path string
	id, doc      string // the operation's name, and what it does
	open         bool   // for everybody, without a token
	roles        []hub.Role
	query        []parameter
	in           reflect.Type // of the body; nil: it has none
	mayLack      bool         // the body may be left out
	most         int64        // bytes of the body; 0: mostBody
	inKind       string       // media type of a body that is no JSON
	of           hub.Kind     // whose body is in, and in the answer's object
	condition    bool         // it wants If-Match or If-None-Match
	changes      bool         // it takes an Idempotency-Key
	statuses     []int        // of a yes; nil: 200
	out          reflect.Type // of the answer; nil: it has none, or is no JSON
	outKind      string       // media type of an answer that is no JSON
	do           func(*Server, *call) (answer, error)
}

// parameter is one of the query.
type parameter struct {
	name, doc string
	whole     bool // a whole number; else text
}

var (
	admin    = []hub.Role{hub.RoleAdmin}
	readers  = []hub.Role{hub.RoleAdmin, hub.RoleAuditor}
	owners   = []hub.Role{hub.RoleAdmin, hub.RoleTeamOwner}
	everyone = []hub.Role{hub.RoleAdmin, hub.RoleTeamOwner, hub.RoleAuditor}
)

var (
	limitParameter   = parameter{"limit", "How many at most, 1 to 1000; 100 without it.", true}
	afterParameter   = parameter{"after", "Those behind this one: what the page before had in next.", false}
	messageParameter = parameter{"message", "Why, for the revision.", false}
)

// mostBody bounds a body, and mostBatch one of many things, in bytes.
const (
	mostBody  = 1 << 20
	mostBatch = 16 << 20
)

// routes are all operations.
var routes = sync.OnceValue(func() (all []*route) {
	for _, s := range shelves {
		all = append(all, s.routes()...)
	}
	all = append(all, platformRoutes()...)
	all = append(all, keyRoutes()...)
	all = append(all, revisionRoutes()...)
	all = append(all, tokenRoutes()...)
	return append(all, stateRoutes()...)
})

// shelf is where things of a kind are.
type shelf struct {
	kind             hub.Kind
	path             string
	readers, writers []hub.Role
	one, many        string // for operations: Team, Teams
	a                string // for people: a team
}

var shelves = []shelf{
	{hub.KindSpoke, "/v1/spokes", readers, admin, "Spoke", "Spokes", "a spoke"},
	{hub.KindEndpoint, "/v1/endpoints", readers, admin, "Endpoint", "Endpoints", "an endpoint"},
	{hub.KindModel, "/v1/models", everyone, admin, "Model", "Models", "a model"},
	{hub.KindTeam, "/v1/teams", everyone, admin, "Team", "Teams", "a team"},
	{hub.KindKey, "/v1/keys", everyone, owners, "Key", "Keys", "a key"},
	{hub.KindIssuer, "/v1/issuers", readers, admin, "Issuer", "Issuers", "an issuer"},
}

// routes of a kind of things that have names.
func (s shelf) routes() []*route {
	list := &route{method: "GET", path: s.path, id: "list" + s.many, doc: "Lists the " + string(s.kind) + "s by name.", roles: s.readers,
		query: []parameter{limitParameter, afterParameter}, of: s.kind, out: reflect.TypeFor[List[Object]](), do: listThings(s.kind)}
	if s.kind == hub.KindKey {
		list.query = append(list.query, parameter{"team", "Only keys of this team.", false})
	}
	return append([]*route{list}, thingRoutes(s, s.path+"/{name}")...)
}

func platformRoutes() []*route {
	return thingRoutes(shelf{kind: hub.KindPlatform, readers: readers, writers: admin, one: "Platform", a: "what holds for everyone"}, "/v1/platform")
}

// thingRoutes are those of one thing.
func thingRoutes(s shelf, path string) []*route {
	return []*route{
		{method: "GET", path: path, id: "get" + s.one, doc: "Tells of " + s.a + ".", roles: s.readers, of: s.kind,
			out: reflect.TypeFor[Object](), do: getThing(s.kind)},
		{method: "PUT", path: path, id: "put" + s.one, doc: "Makes " + s.a + " (If-None-Match: *), or changes it (If-Match).", roles: s.writers,
			query: []parameter{messageParameter}, of: s.kind, in: reflect.TypeFor[json.RawMessage](), condition: true, changes: true,
			statuses: []int{200, 201}, out: reflect.TypeFor[Changed](), do: putThing(s.kind)},
		{method: "DELETE", path: path, id: "delete" + s.one, doc: "Deletes " + s.a + ".", roles: s.writers,
			query: []parameter{messageParameter}, condition: true, changes: true, out: reflect.TypeFor[Changed](), do: deleteThing(s.kind)},
	}
}

func keyRoutes() []*route {
	made := reflect.TypeFor[KeyMade]()
	return []*route{
		{method: "POST", path: "/v1/keys", id: "createKey", doc: "Makes a key. Its secret is in this one answer.", roles: owners,
			in: reflect.TypeFor[NewKey](), changes: true, statuses: []int{201}, out: made, do: createKey},
		{method: "POST", path: "/v1/keys/{name}/rotate", id: "rotateKey",
			doc:   "Makes a key that has all that this one has, which stops after an overlap. The new secret is in this one answer.",
			roles: owners, in: reflect.TypeFor[Rotation](), mayLack: true, changes: true, statuses: []int{201}, out: made, do: rotateKey},
		{method: "POST", path: "/v1/keys/{name}/revoke", id: "revokeKey", doc: "Refuses a key from now on, at every spoke.", roles: owners,
			in: reflect.TypeFor[Reason](), mayLack: true, changes: true, out: reflect.TypeFor[Changed](), do: revokeKey},
	}
}

func revisionRoutes() []*route {
	revision := reflect.TypeFor[Revision]()
	return []*route{
		{method: "GET", path: "/v1/revisions", id: "listRevisions", doc: "Lists the revisions, the newest first.", roles: readers,
			query: []parameter{limitParameter, afterParameter}, out: reflect.TypeFor[List[Revision]](), do: listRevisions},
		{method: "GET", path: "/v1/revisions/{number}", id: "getRevision", doc: "Tells of a revision.", roles: readers, out: revision, do: getRevision},
		{method: "GET", path: "/v1/revisions/{number}/diff", id: "diffRevisions", doc: "Tells what another revision has differently.", roles: readers,
			query: []parameter{{"to", "The other revision; without it the one before this one is the first, and this the other.", true}},
			out:   reflect.TypeFor[Diff](), do: diffRevisions},
		{method: "POST", path: "/v1/revisions/{number}/rollback", id: "rollback", doc: "Makes a new revision that restores what this one had.", roles: admin,
			in: reflect.TypeFor[Rollback](), mayLack: true, changes: true, statuses: []int{201}, out: revision, do: rollback},
		{method: "POST", path: "/v1/batch", id: "batch", doc: "Makes several changes as one revision, or none.", roles: owners,
			in: reflect.TypeFor[Batch](), most: mostBatch, changes: true, statuses: []int{201}, out: revision, do: batch},
		{method: "POST", path: "/v1/import", id: "importPolicy", doc: "Takes over a policy file, as one revision.", roles: admin,
			query: []parameter{messageParameter, {"spoke", "Where its endpoints run; made if it is not there. Left out: they are placed.", false},
				{"replace", "true: what the file does not have is deleted, but for spokes.", false},
				{"revive", "true: keys and subjects that were revoked work again where the file does not call them revoked. Else they stay so.", false},
				{"dry_run", "true: tell what would be changed, and change nothing.", false}},
			inKind: "application/yaml", most: mostBatch, statuses: []int{200, 201}, out: reflect.TypeFor[Imported](), do: importPolicy},
		{method: "GET", path: "/v1/audit", id: "listAudit", doc: "Lists who changed what, the newest first.", roles: readers,
			query: []parameter{limitParameter, afterParameter, {"kind", "Only of this kind.", false}, {"name", "Only of the thing with this name.", false},
				{"actor", "Only what this token did.", false}},
			out: reflect.TypeFor[List[AuditEntry]](), do: listAudit},
	}
}

func tokenRoutes() []*route {
	return []*route{
		{method: "GET", path: "/v1/tokens", id: "listTokens", doc: "Lists the admin tokens.", roles: readers, out: reflect.TypeFor[List[Token]](), do: listTokens},
		{method: "POST", path: "/v1/tokens", id: "createToken", doc: "Makes an admin token. Its secret is in this one answer.", roles: admin,
			in: reflect.TypeFor[NewToken](), statuses: []int{201}, out: reflect.TypeFor[TokenMade](), do: createToken},
		{method: "DELETE", path: "/v1/tokens/{name}", id: "revokeToken", doc: "Revokes an admin token.", roles: admin, statuses: []int{204}, do: revokeToken},
	}
}

func stateRoutes() []*route {
	return []*route{
		{method: "GET", path: "/v1/status", id: "getStatus", doc: "Tells which spoke and door holds which revision, and how they are.", roles: readers,
			out: reflect.TypeFor[Status](), do: getStatus},
		{method: "GET", path: "/v1/usage", id: "getUsage", doc: "Tells what quotas of days and months have counted in the periods that run, at all spokes together.",
			roles: everyone, query: []parameter{{"level", "Only of limits of this level: platform, model, team or key, which wants owner.", false}, {"owner", "Only of this model, team or key.", false}},
			out: reflect.TypeFor[List[Use]](), do: getUsage},
		{method: "GET", path: "/v1/deployments/{name}", id: "getDeployment", doc: "Renders the deployment of a spoke, from the templates of its endpoints' stacks.",
			roles: readers, outKind: "application/yaml", do: getDeployment},
		{method: "GET", path: "/openapi.json", id: "getOpenAPI", doc: "This document.", open: true, outKind: "application/json", do: getOpenAPI},
	}
}
