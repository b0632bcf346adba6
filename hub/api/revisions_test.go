package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/hub"
)

// TestRevisions: what a batch changes is one revision, which is told, compared, and taken back.
func TestRevisions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const changes = `{"message": "night shift", "base": 1, "changes": [
		{"kind": "team", "name": "night", "body": {"models": ["*"]}, "if_revision": 0},
		{"kind": "team", "name": "web", "body": {"models": ["small"], "limits": [{"concurrency": 7}]}, "if_revision": 1},
		{"kind": "key", "name": "alice", "body": null}]}`
	var made Revision
	r.admin("POST", "/v1/batch", changes, "Idempotency-Key: night").wants(t, 201).into(t, &made)
	if made.Number != 2 || made.Changes != 3 || made.Message != "night shift" || made.Role != "admin" || len(made.Digest) != 64 {
		t.Errorf("made %+v", made)
	}
	var again Revision
	if r.admin("POST", "/v1/batch", changes, "Idempotency-Key: night").wants(t, 201).into(t, &again); again != made {
		t.Errorf("again %+v", again)
	}
	r.admin("POST", "/v1/batch", changes).wants(t, 409)
	r.admin("POST", "/v1/batch", strings.Replace(changes, `"base": 1, `, "", 1)).wants(t, 409)

	var d Diff
	r.admin("GET", "/v1/revisions/2/diff", "").wants(t, 200).into(t, &d)
	if d.From != 1 || d.To != 2 || len(d.Changes) != 3 {
		t.Fatalf("diff %+v", d)
	}
	for i, want := range []string{"team night + ", "team web ~", "key alice -"} {
		x, mark := d.Changes[i], "~"
		if x.Before == nil {
			mark = "+ "
		} else if x.After == nil {
			mark = "-"
		}
		if got := x.Kind + " " + x.Name + " " + mark; got != want {
			t.Errorf("difference %d is %s, want %s", i, got, want)
		}
	}
	var back Diff
	if r.admin("GET", "/v1/revisions/2/diff?to=1", "").wants(t, 200).into(t, &back); back.From != 2 || back.To != 1 || back.Changes[0].After != nil {
		t.Errorf("the other way: %+v", back)
	}

	r.admin("POST", "/v1/revisions/1/rollback", `{"base": 1}`).wants(t, 409)
	var restored Revision
	r.admin("POST", "/v1/revisions/1/rollback", `{"message": "not so", "base": 2}`).wants(t, 201).into(t, &restored)
	if restored.Number != 3 || restored.RollbackTo != 1 {
		t.Errorf("rollback: %+v", restored)
	}
	r.admin("GET", "/v1/teams/night", "").wants(t, 404)
	var alice Object
	if r.admin("GET", "/v1/keys/alice", "").wants(t, 200).into(t, &alice); !strings.Contains(string(alice.Body), `"revoked":true`) {
		t.Errorf("a key that was deleted works again: %s", alice.Body)
	}
	r.admin("POST", "/v1/revisions/1/rollback", `{"revive": true}`).wants(t, 201)

	var first, second List[Revision]
	r.admin("GET", "/v1/revisions?limit=3", "").wants(t, 200).into(t, &first)
	r.admin("GET", "/v1/revisions?limit=3&after="+first.Next, "").wants(t, 200).into(t, &second)
	if len(first.Items) != 3 || first.Items[0].Number != 4 || len(second.Items) != 1 || second.Items[0].Number != 1 || second.Next != "" {
		t.Errorf("pages: %+v, %+v", first, second)
	}
	var one Revision
	if r.admin("GET", "/v1/revisions/2", "").wants(t, 200).into(t, &one); one != made {
		t.Errorf("revision 2 is %+v", one)
	}
}

// TestTheAuditLogHasEveryChange: who, what, before, after.
func TestTheAuditLogHasEveryChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.admin("PUT", "/v1/teams/web", `{"models": ["*"]}`, "If-Match: *").wants(t, 200).header.Get("X-Request-Id")
	r.as(hub.RoleTeamOwner, "POST", "/v1/keys/alice/revoke", `{"message": "lost"}`).wants(t, 200)
	var log List[AuditEntry]
	r.admin("GET", "/v1/audit?limit=2", "").wants(t, 200).into(t, &log)
	if len(log.Items) != 2 || log.Next == "" {
		t.Fatalf("got %+v", log)
	}
	revoked, put := log.Items[0], log.Items[1]
	if revoked.Actor != "team-owner" || revoked.Action != "update" || revoked.Kind != "key" || revoked.Name != "alice" || !strings.Contains(string(revoked.After), `"revoked":true`) ||
		strings.Contains(string(revoked.Before), "revoked") {
		t.Errorf("the revocation: %+v", revoked)
	}
	if put.Actor != "admin" || put.RequestID != id || put.Revision != 2 || string(put.Before) != `{"models":["small"],"name":"web"}` || string(put.After) != `{"models":["*"],"name":"web"}` {
		t.Errorf("the change: %+v", put)
	}
	for query, want := range map[string]int{"kind=token": 3, "kind=team&name=web": 2, "actor=team-owner": 1, "actor=nobody": 0} {
		var list List[AuditEntry]
		if r.admin("GET", "/v1/audit?"+query, "").wants(t, 200).into(t, &list); len(list.Items) != want {
			t.Errorf("%s: want %d entries, got %+v", query, want, list.Items)
		}
	}
	seen := map[uint64]bool{}
	for path := "/v1/audit?limit=4"; path != ""; {
		var list List[AuditEntry]
		r.admin("GET", path, "").wants(t, 200).into(t, &list)
		for _, e := range list.Items {
			if seen[e.Number] {
				t.Errorf("entry %d is on two pages", e.Number)
			}
			seen[e.Number] = true
		}
		if path = ""; list.Next != "" {
			path = "/v1/audit?limit=4&after=" + list.Next
		}
	}
	if len(seen) != 14 { // 9 things, 3 tokens, and the two changes here
		t.Errorf("%d entries", len(seen))
	}
}

// TestAPolicyFileIsTakenOver, and told before what it would change.
func TestAPolicyFileIsTakenOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	yaml := strings.Replace(firstPolicy, "requests_per_second: 50, burst: 100", "requests_per_second: 5", 1)
	yaml = yaml[:strings.Index(yaml, "issuers:")]
	send := func(query, body string) response {
		return r.admin("POST", "/v1/import?"+query, body, "Content-Type: application/yaml")
	}
	var would, did, none Imported
	send("dry_run=true&replace=true", yaml).wants(t, 200).into(t, &would)
	if r.hub.Head().Number != 1 || would.Revision.Number != 1 || len(would.Changes) != 2 {
		t.Fatalf("a preview: %+v, revision %d", would, r.hub.Head().Number)
	}
	send("replace=true&message=less", yaml).wants(t, 201).into(t, &did)
	if did.Revision.Number != 2 || did.Revision.Message != "less" || fmt.Sprintf("%s", did.Changes) != fmt.Sprintf("%s", would.Changes) {
		t.Errorf("it did %s, and would %s", did.Changes, would.Changes)
	}
	if send("replace=true", yaml).wants(t, 201).into(t, &none); none.Revision.Number != 2 || len(none.Changes) != 0 {
		t.Errorf("once more: %+v", none)
	}
	p := send("dry_run=true", strings.Replace(yaml, "team: web", "team: wep", 1)).wants(t, 422).problem(t)
	if len(p.Faults) != 1 || !strings.HasPrefix(p.Faults[0].Path, "policy:9:") || !strings.Contains(p.Faults[0].Text, "wep") {
		t.Errorf("a bad file: %+v", p)
	}
}

// TestTheDocumentIsWhole: every reference leads somewhere, every operation has a name of its own.
func TestTheDocumentIsWhole(t *testing.T) {
	t.Parallel()
	doc := parsedJSON(t, OpenAPI()).(map[string]any)
	v := validator{doc}
	names := map[string]bool{}
	var walk func(at string, x any)
	walk = func(at string, x any) {
		switch x := x.(type) {
		case map[string]any:
			if to, is := x["$ref"].(string); is && v.referred(to) == nil {
				t.Errorf("%s: %s leads nowhere", at, to)
			}
			if id, is := x["operationId"].(string); is {
				if names[id] {
					t.Errorf("two operations are called %s", id)
				}
				names[id] = true
			}
			for name, inner := range x {
				walk(at+"/"+name, inner)
			}
		case []any:
			for i, inner := range x {
				walk(fmt.Sprintf("%s/%d", at, i), inner)
			}
		}
	}
	walk("", doc)
	if doc["openapi"] != "3.1.0" || len(names) != len(routes()) {
		t.Errorf("%d operations for %d routes", len(names), len(routes()))
	}
	for _, kind := range hub.Kinds {
		if s, is := v.referred("#/components/schemas/" + bodyName(kind)).(map[string]any); !is || s["properties"] == nil {
			t.Errorf("the body of %s is not described: %v", kind, s)
		}
	}
}

// FuzzDecode: what the strict decoder takes, encoding/json takes too and says the same of; nothing panics.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"message":"x","base":1,"changes":[{"kind":"team","name":"x","body":{"a":[1,{"b":null}]}}]}`, `{"changes":[{}],"changes":[]}`, `{"Message":""}`, `[`, `{}x`, `{"base":1e400}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var b, plain Batch
		if decode(body, &b) != nil {
			return
		}
		if err := json.Unmarshal(body, &plain); err != nil {
			t.Fatalf("json: %v", err)
		}
		if fmt.Sprintf("%+v", b) != fmt.Sprintf("%+v", plain) && b.Base == nil {
			t.Fatalf("%+v is not %+v", b, plain)
		}
	})
}
