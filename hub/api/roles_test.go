package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/hub"
)

// requests are one good request of each operation, in an order in which each finds what it wants.
var requests = []struct{ id, method, path, body, header string }{
	{"getOpenAPI", "GET", "/openapi.json", "", ""},
	{"listSpokes", "GET", "/v1/spokes", "", ""},
	{"getSpoke", "GET", "/v1/spokes/local", "", ""},
	{"putSpoke", "PUT", "/v1/spokes/east", `{"labels": {"zone": "east"}}`, "If-None-Match: *"},
	{"deleteSpoke", "DELETE", "/v1/spokes/east", "", "If-Match: *"},
	{"listEndpoints", "GET", "/v1/endpoints", "", ""},
	{"getEndpoint", "GET", "/v1/endpoints/sim", "", ""},
	{"putEndpoint", "PUT", "/v1/endpoints/spare", `{"spoke": "local"}`, "If-None-Match: *"},
	{"deleteEndpoint", "DELETE", "/v1/endpoints/spare", "", "If-Match: *"},
	{"listModels", "GET", "/v1/models", "", ""},
	{"getModel", "GET", "/v1/models/small", "", ""},
	{"putModel", "PUT", "/v1/models/spare", `{"endpoint": "sim"}`, "If-None-Match: *"},
	{"deleteModel", "DELETE", "/v1/models/spare", "", "If-Match: *"},
	{"listTeams", "GET", "/v1/teams", "", ""},
	{"getTeam", "GET", "/v1/teams/research", "", ""},
	{"putTeam", "PUT", "/v1/teams/spare", `{"models": ["*"]}`, "If-None-Match: *"},
	{"deleteTeam", "DELETE", "/v1/teams/spare", "", "If-Match: *"},
	{"listIssuers", "GET", "/v1/issuers", "", ""},
	{"getIssuer", "GET", "/v1/issuers/company", "", ""},
	{"putIssuer", "PUT", "/v1/issuers/spare", `{"issuer": "https://x", "audience": "x", "jwks_file": "/x"}`, "If-None-Match: *"},
	{"deleteIssuer", "DELETE", "/v1/issuers/spare", "", "If-Match: *"},
	{"putPlatform", "PUT", "/v1/platform", `{"limits": [{"concurrency": 9}]}`, "If-None-Match: *"},
	{"getPlatform", "GET", "/v1/platform", "", ""},
	{"deletePlatform", "DELETE", "/v1/platform", "", "If-Match: *"},
	{"listKeys", "GET", "/v1/keys", "", ""},
	{"getKey", "GET", "/v1/keys/alice", "", ""},
	{"putKey", "PUT", "/v1/keys/spare", `{"team": "research", "sha256": "0000000000000000000000000000000000000000000000000000000000000001"}`, "If-None-Match: *"},
	{"deleteKey", "DELETE", "/v1/keys/spare", "", "If-Match: *"},
	{"createKey", "POST", "/v1/keys", `{"id": "made", "team": "research"}`, ""},
	{"rotateKey", "POST", "/v1/keys/made/rotate", `{"new_id": "made-anew", "overlap": "1h"}`, ""},
	{"revokeKey", "POST", "/v1/keys/made-anew/revoke", "", ""},
	{"batch", "POST", "/v1/batch", `{"changes": [{"kind": "key", "name": "made", "body": null}]}`, ""},
	{"importPolicy", "POST", "/v1/import", firstPolicy, "Content-Type: application/yaml"},
	{"listRevisions", "GET", "/v1/revisions", "", ""},
	{"getRevision", "GET", "/v1/revisions/1", "", ""},
	{"diffRevisions", "GET", "/v1/revisions/1/diff", "", ""},
	{"rollback", "POST", "/v1/revisions/1/rollback", "", ""},
	{"listAudit", "GET", "/v1/audit", "", ""},
	{"listTokens", "GET", "/v1/tokens", "", ""},
	{"createToken", "POST", "/v1/tokens", `{"name": "spare", "role": "auditor"}`, ""},
	{"revokeToken", "DELETE", "/v1/tokens/spare", "", ""},
	{"getStatus", "GET", "/v1/status", "", ""},
	{"getUsage", "GET", "/v1/usage", "", ""},
	{"getDeployment", "GET", "/v1/deployments/local", "", ""},
}

// TestEveryOperationByEveryRole does each operation with each role's token, and without one: it is done for whom the table says,
// and refused, without a trace, to everybody else.
func TestEveryOperationByEveryRole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	byID := map[string]*route{}
	for _, x := range routes() {
		byID[x.id] = x
	}
	done := map[string]bool{}
	for _, q := range requests {
		x := byID[q.id]
		if x == nil {
			t.Fatalf("there is no operation %s", q.id)
		}
		if done[q.id] = true; x.open {
			r.as("none", q.method, q.path, q.body).wants(t, 200)
			continue
		}
		before := r.hub.Head().Number
		r.as("none", q.method, q.path, q.body, q.header).wants(t, http.StatusUnauthorized)
		for _, role := range []hub.Role{hub.RoleAuditor, hub.RoleTeamOwner} {
			if may := slices.Contains(x.roles, role); !may {
				r.as(role, q.method, q.path, q.body, q.header).wants(t, http.StatusForbidden)
			} else if q.method == "GET" {
				r.as(role, q.method, q.path, q.body, q.header).wants(t, http.StatusOK)
			}
		}
		if r.hub.Head().Number != before {
			t.Fatalf("%s: somebody has changed what they may not", q.id)
		}
		role := hub.RoleAdmin
		if q.method != "GET" && slices.Contains(x.roles, hub.RoleTeamOwner) { // what both may is done by the one who may less
			role = hub.RoleTeamOwner
		}
		if res := r.as(role, q.method, q.path, q.body, q.header); res.status >= 300 {
			t.Errorf("%s by the %s: %d: %s", q.id, role, res.status, res.text)
		}
	}
	for id := range byID {
		if !done[id] {
			t.Errorf("no request here is of %s", id)
		}
	}
}

// TestAuditorsChangeNothing, and nobody does by reading, by the table itself.
func TestAuditorsChangeNothing(t *testing.T) {
	for _, x := range routes() {
		if x.method != "GET" && slices.Contains(x.roles, hub.RoleAuditor) {
			t.Errorf("%s is for auditors, and changes something", x.id)
		}
		if !x.open && !slices.Contains(x.roles, hub.RoleAdmin) {
			t.Errorf("%s is not for admins", x.id)
		}
	}
}

func TestATeamOwnerSeesTheirOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	owner := func(path string) string { return r.as(hub.RoleTeamOwner, "GET", path, "").wants(t, 200).text }
	for path, want := range map[string]string{"/v1/teams": "research", "/v1/keys": "alice", "/v1/usage": "research"} {
		if got := owner(path); !strings.Contains(got, want) || strings.Contains(got, "web") || strings.Contains(got, "shop") {
			t.Errorf("%s: %s", path, got)
		}
	}
	r.as(hub.RoleTeamOwner, "GET", "/v1/keys?team=web", "").wants(t, 403)
	r.as(hub.RoleTeamOwner, "GET", "/v1/keys/shop", "").wants(t, 404)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for query, want := range map[string]string{"": "team/research team/web ", "?owner=web": "team/web ", "?level=key&owner=shop": "key/shop ", "?level=model": "", "?owner=shop": "key/shop "} {
		var list List[Use]
		r.admin("GET", "/v1/usage"+query, "").wants(t, 200).into(t, &list)
		got := ""
		for _, u := range list.Items {
			got += u.Level + "/" + u.Owner + " "
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	r.admin("GET", "/v1/usage?level=key", "").wants(t, 400)
}
