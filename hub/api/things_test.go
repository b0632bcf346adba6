package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const batchTeam = `{"models": ["*"], "limits": [{"concurrency": 3}]}`

func TestAThingIsMadeChangedAndDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var made Changed
	res := r.admin("PUT", "/v1/teams/batch?message=for+the+night", batchTeam, "If-None-Match: *").wants(t, 201)
	res.into(t, &made)
	if made.Object.Revision != 2 || made.Revision.Number != 2 || made.Revision.Message != "for the night" || made.Revision.Actor != "admin" || res.header.Get("ETag") != `"2"` ||
		made.Revision.RequestID != res.header.Get("X-Request-Id") {
		t.Errorf("made: %s, %v", res.text, res.header)
	}
	if want := `{"limits":[{"concurrency":3}],"models":["*"],"name":"batch"}`; string(made.Object.Body) != want {
		t.Errorf("its body is %s, want %s", made.Object.Body, want)
	}
	if got := r.admin("GET", "/v1/teams/batch", "").wants(t, 200); got.header.Get("ETag") != `"2"` {
		t.Errorf("ETag %s", got.header.Get("ETag"))
	}
	if got := r.admin("GET", "/v1/teams/batch", "", `If-None-Match: "2"`).wants(t, 304); got.text != "" {
		t.Errorf("304 with a body: %s", got.text)
	}
	if got := r.admin("HEAD", "/v1/teams/batch", "").wants(t, 200); got.text != "" || got.header.Get("ETag") != `"2"` {
		t.Errorf("HEAD: %q, %v", got.text, got.header)
	}
	r.admin("PUT", "/v1/teams/batch", `{"models": ["small"]}`, `If-Match: "2"`).wants(t, 200)
	r.admin("DELETE", "/v1/teams/batch", "", `If-Match: "2"`).wants(t, 412)
	r.admin("DELETE", "/v1/teams/batch", "", `If-Match: "3"`).wants(t, 200)
	r.admin("GET", "/v1/teams/batch", "").wants(t, 404)
	r.admin("DELETE", "/v1/teams/batch", "", "If-Match: *").wants(t, 404)
}

// TestNobodyOverwritesWhatTheyHaveNotSeen: what the header expects must be there.
func TestNobodyOverwritesWhatTheyHaveNotSeen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, c := range []struct {
		name, header string
		status       int
		says         string
	}{
		{"research", "", 428, "If-Match"},
		{"research", "If-None-Match: *", 412, "since revision 1"},
		{"research", `If-Match: "7"`, 412, "has changed in 1"},
		{"nobody", `If-Match: "1"`, 412, "gone"},
		{"research", `If-Match: 1`, 400, "ETag"},
		{"research", `If-Match: "1", "2"`, 400, "ETag"},
		{"research", `If-Match: W/"1"`, 400, "ETag"},
		{"research", `If-None-Match: "1"`, 400, "*"},
		{"research", `If-Match: "1"`, 200, ""},
		{"research", `If-Match: *`, 200, ""},
	} {
		got := r.admin("PUT", "/v1/teams/"+c.name, batchTeam, c.header)
		if got.status != c.status || !strings.Contains(got.text, c.says) {
			t.Errorf("%s, %s: want %d and %q, got %d: %s", c.name, c.header, c.status, c.says, got.status, got.text)
		}
	}
	r.admin("PUT", "/v1/teams/research", batchTeam, "If-None-Match: *", `If-Match: "1"`).wants(t, 400)
	r.admin("DELETE", "/v1/teams/research", "").wants(t, 428)
	r.admin("DELETE", "/v1/teams/research", "", "If-None-Match: *").wants(t, 400)
}

// TestABadPolicyIsRefusedWithItsReason and nothing of it is stored.
func TestABadPolicyIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, c := range []struct{ path, body, at, says string }{
		{"/v1/teams/batch", `{"models": ["nothing-*"]}`, "teams[batch].models[0]", "no model"},
		{"/v1/teams/batch", `{"models": ["*"], "limits": [{"concurency": 3}]}`, "teams[batch].limits[0].concurency", "unknown key"},
		{"/v1/teams/batch", `{"models": ["*"], "limits": [{"concurrency": 0}]}`, "teams[batch].limits[0].concurrency", ""},
		{"/v1/teams/batch", `{"name": "other", "models": ["*"]}`, "teams[batch].name", "batch"},
		{"/v1/teams/batch", `[]`, "teams[batch]", "object"},
		{"/v1/teams/batch", `null`, "teams[batch]", "object"},
		{"/v1/models/new", `{"endpoint": "nowhere"}`, "models[new].endpoint", "nowhere"},
		{"/v1/teams/-", `{"models": ["*"]}`, "teams[-].name", "not a name"},
		{"/v1/keys/eve", `{"team": "research", "sha256": "abc"}`, "keys[eve].sha256", "64"},
		{"/v1/spokes/west", `{"label": {}}`, `spokes[west]."label"`, "unknown"},
	} {
		got := r.admin("PUT", c.path, c.body, "If-None-Match: *").wants(t, 422)
		p := got.problem(t)
		if len(p.Faults) == 0 || p.Faults[0].Path != c.at || !strings.Contains(p.Faults[0].Text, c.says) || p.Type != "urn:spokegate:problem:invalid" {
			t.Errorf("%s %s: want a fault at %s with %q, got %s", c.path, c.body, c.at, c.says, got.text)
		}
	}
	if p := r.admin("DELETE", "/v1/teams/web", "", "If-Match: *").wants(t, 422).problem(t); p.Faults[0].Path != "teams[web]" || !strings.Contains(p.Faults[0].Text, "1 keys") {
		t.Errorf("a team that has keys: %+v", p)
	}
	var st Status
	if r.admin("GET", "/v1/status", "").into(t, &st); st.Revision != 1 {
		t.Errorf("there is a revision %d of what was refused", st.Revision)
	}
}

// TestNamesInPaths: the names of models have slashes, which are written %2F.
func TestNamesInPaths(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var o Object
	r.admin("GET", "/v1/models/org%2Flarge", "").wants(t, 200).into(t, &o)
	if o.Name != "org/large" {
		t.Errorf("got %q", o.Name)
	}
	r.admin("GET", "/v1/models/org/large", "").wants(t, 404)
	r.admin("GET", "/v1/teams/%2e%2e%2fkeys", "").wants(t, 404)
	r.admin("DELETE", "/v1//teams/web", "", "If-Match: *").wants(t, 404)
	r.admin("DELETE", "/v1/teams/../teams/web", "", "If-Match: *").wants(t, 404)
	r.admin("GET", "/v1/teams/"+strings.Repeat("x", 64), "").wants(t, 422)
}

func TestListsHavePages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := `{"changes": [`
	for i := range 25 {
		b += fmt.Sprintf(`{"kind": "team", "name": "t%02d", "body": {"models": ["*"]}},`, i)
	}
	r.admin("POST", "/v1/batch", strings.TrimSuffix(b, ",")+`]}`).wants(t, 201)
	var names []string
	path, pages := "/v1/teams?limit=10", 0
	for ; path != ""; pages++ {
		var list List[Object]
		res := r.admin("GET", path, "").wants(t, 200)
		res.into(t, &list)
		for _, o := range list.Items {
			names = append(names, o.Name)
		}
		if path = ""; list.Next != "" {
			link, rest, _ := strings.Cut(strings.TrimPrefix(res.header.Get("Link"), "<"), ">")
			if path = link; rest != `; rel="next"` || !strings.Contains(link, "after="+url.QueryEscape(list.Next)) {
				t.Fatalf("next is %q, and Link %q", list.Next, res.header.Get("Link"))
			}
		}
		if pages == 0 { // what is made meanwhile in front of the place moves nothing
			r.admin("PUT", "/v1/teams/a", batchTeam, "If-None-Match: *").wants(t, 201)
		}
	}
	if want := 27; pages != 3 || len(names) != want || names[0] != "research" || names[26] != "web" {
		t.Errorf("want %d teams on 3 pages, got %d on %d: %v", want, len(names), pages, names)
	}
	for _, bad := range []string{"limit=0", "limit=1001", "limit=x", "limit=-1", "order=name", "limit=1&limit=2", "team=web", "%zz"} {
		r.admin("GET", "/v1/teams?"+bad, "").wants(t, 400)
	}
	var keys List[Object]
	if r.admin("GET", "/v1/keys?team=web", "").into(t, &keys); len(keys.Items) != 1 || keys.Items[0].Name != "shop" {
		t.Errorf("keys of web: %+v", keys)
	}
}

func TestThePlatformIsOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.admin("GET", "/v1/platform", "").wants(t, 404)
	r.admin("PUT", "/v1/platform", `{"limits": [{"concurrency": 9}]}`, "If-None-Match: *").wants(t, 201)
	var o Object
	if r.admin("GET", "/v1/platform", "").wants(t, 200).into(t, &o); o.Name != "" || o.Kind != "platform" || string(o.Body) != `{"limits":[{"concurrency":9}]}` {
		t.Errorf("got %+v", o)
	}
	r.admin("DELETE", "/v1/platform", "", `If-Match: "2"`).wants(t, 200)
}

// TestOtherRequestsAreRefused by the right status, each told by what would do.
func TestOtherRequestsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	big := `{"models": ["` + strings.Repeat("x", mostBody) + `"]}`
	for _, c := range []struct {
		method, path, body, header string
		status                     int
		says                       string
	}{
		{"GET", "/", "", "", 404, "openapi.json"},
		{"GET", "/v2/teams", "", "", 404, "openapi.json"},
		{"GET", "/v1/teams/", "", "", 404, ""},
		{"PATCH", "/v1/teams/web", "{}", "", 405, "DELETE, GET, HEAD, PUT"},
		{"POST", "/v1/teams", "{}", "", 405, "GET, HEAD"},
		{"OPTIONS", "/v1/batch", "", "", 405, "POST"},
		{"GET", "/v1/batch", "", "", 405, "POST"},
		{"GET", "/v1/teams", "", "Accept: text/html", 406, "application/json"},
		{"GET", "/v1/teams", "", "Accept: application/json;q=0", 406, "application/json"},
		{"GET", "/v1/teams", "", "Accept: text/html, */*;q=0.1", 200, ""},
		{"GET", "/v1/teams", "", "Accept: application/*", 200, ""},
		{"GET", "/v1/deployments/local", "", "Accept: application/json", 406, "application/yaml"},
		{"PUT", "/v1/teams/web", "{}", "Content-Type: text/plain", 415, "application/json"},
		{"PUT", "/v1/teams/web", "{}", "Content-Type: ", 415, "application/json"},
		{"PUT", "/v1/teams/web", "{}", "Content-Encoding: gzip", 415, "Content-Encoding"},
		{"PUT", "/v1/teams/web", "", "", 415, "application/json"},
		{"PUT", "/v1/teams/web", big, "", 413, "1048576"},
		{"POST", "/v1/batch", `{"changes": []}`, "", 422, "at least one"},
		{"POST", "/v1/batch", `{"chnges": []}`, "", 400, "chnges"},
		{"POST", "/v1/batch", `{"Changes": []}`, "", 400, "Changes"},
		{"POST", "/v1/batch", `{"changes": [], "changes": []}`, "", 400, "given twice"},
		{"POST", "/v1/batch", `{"changes": [{"kind": "team", "name": "x", "body": {"models": [], "models": []}}]}`, "", 400, "changes[0].body.models"},
		{"POST", "/v1/batch", `{"changes": [{"kind": "team", "nam": "x"}]}`, "", 400, "changes[0].nam"},
		{"POST", "/v1/batch", `{"changes": [{"kind": "team", "name": "web"}]}`, "", 400, "changes[0].body: is missing"},
		{"POST", "/v1/batch", `{"changes": 3}`, "", 400, "want a list"},
		{"POST", "/v1/batch", `{"base": -1, "changes": []}`, "", 400, "base"},
		{"POST", "/v1/batch", `{"base": 1.5, "changes": []}`, "", 400, "base"},
		{"POST", "/v1/batch", `{"message": 3, "changes": []}`, "", 400, "message"},
		{"POST", "/v1/batch", `{} {}`, "", 400, "more after"},
		{"POST", "/v1/batch", `{"changes": [`, "", 400, "ends before"},
		{"POST", "/v1/batch", `{"changes": [}`, "", 400, "not JSON"},
		{"POST", "/v1/batch", `{"changes": ` + strings.Repeat("[", 40), "", 400, "nested"},
		{"POST", "/v1/batch", `{"changes": [{"kind": "pod", "name": "x", "body": {}}]}`, "", 422, "pod"},
		{"GET", "/v1/teams", "", "Idempotency-Key: x", 400, "Idempotency-Key"},
		{"POST", "/v1/batch", "{}", "Idempotency-Key: " + strings.Repeat("x", 256), 400, "Idempotency-Key"},
		{"GET", "/v1/revisions/0", "", "", 404, ""},
		{"GET", "/v1/revisions/2", "", "", 404, ""},
		{"GET", "/v1/revisions/x", "", "", 404, ""},
		{"GET", "/v1/revisions/1/diff?to=9", "", "", 404, ""},
		{"GET", "/v1/revisions?after=x", "", "", 400, "after"},
		{"POST", "/v1/revisions/9/rollback", "", "", 404, ""},
		{"POST", "/v1/keys", `{"id": "x", "team": "web", "expires": "tomorrow"}`, "", 400, "expires"},
		{"POST", "/v1/keys", `{"id": "x", "team": "nobody"}`, "", 422, "nobody"},
		{"POST", "/v1/tokens", `{"name": "x", "role": "auditor", "expires": "2999-01-01T00:00:00Z"}`, "", 400, "2261"},
		{"POST", "/v1/keys/alice/rotate", `{"overlap": "soon"}`, "", 400, "overlap"},
		{"POST", "/v1/keys/alice/rotate", `{"overlap": "-1h"}`, "", 400, "overlap"},
		{"POST", "/v1/keys/nobody/revoke", "", "", 404, ""},
		{"POST", "/v1/tokens", `{"name": "x", "role": "king"}`, "", 422, "admin, team-owner or auditor"},
		{"DELETE", "/v1/tokens/nobody", "", "", 404, ""},
		{"POST", "/v1/import?replace=perhaps", "{}", "Content-Type: application/yaml", 400, "replace"},
	} {
		headers := []string{"If-Match: *"}
		if c.header != "" {
			headers = append(headers, c.header)
		}
		got := r.admin(c.method, c.path, c.body, headers...)
		if got.status != c.status || !strings.Contains(got.text+got.header.Get("Allow"), c.says) {
			t.Errorf("%s %s %.80s %.80s: want %d and %q, got %d: %s", c.method, c.path, c.body, c.header, c.status, c.says, got.status, got.text)
		}
		if got.status == http.StatusMethodNotAllowed && got.header.Get("Allow") != c.says {
			t.Errorf("%s %s: Allow: %s", c.method, c.path, got.header.Get("Allow"))
		}
	}
}
