package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/hub"
	"github.com/spokegate/spokegate/identity"
)

func keyBody(t *testing.T, o Object) (b struct {
	Team, SHA256, Expires string
	Revoked               bool
}) {
	t.Helper()
	if err := json.Unmarshal(o.Body, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAKeyLives: made, rotated, revoked, deleted; its secret is in one answer alone.
func TestAKeyLives(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var made KeyMade
	res := r.admin("POST", "/v1/keys", `{"id": "bob", "team": "research", "labels": {"desk": "4"}, "message": "for Bob"}`, "Idempotency-Key: once").wants(t, 201)
	res.into(t, &made)
	hash, is := identity.ParseKey(made.Secret)
	if !is || keyBody(t, made.Key).SHA256 != hash.String() || made.Repeated || made.Revision.Message != "for Bob" || res.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("made: %s, %v", res.text, res.header)
	}
	var again KeyMade
	r.admin("POST", "/v1/keys", `{"id": "bob", "team": "research", "labels": {"desk": "4"}, "message": "for Bob"}`, "Idempotency-Key: once").wants(t, 201).into(t, &again)
	if again.Secret != "" || !again.Repeated || again.Revision.Number != made.Revision.Number || again.Key.Name != "bob" {
		t.Errorf("again: %+v", again)
	}
	r.admin("POST", "/v1/keys", `{"id": "bob2", "team": "research"}`, "Idempotency-Key: once").wants(t, 409)
	r.admin("POST", "/v1/keys", `{"id": "bob", "team": "research"}`).wants(t, 409)

	var rotated KeyMade
	r.admin("POST", "/v1/keys/bob/rotate", `{"overlap": "1h"}`).wants(t, 201).into(t, &rotated)
	if rotated.Key.Name != "bob.2" || rotated.Secret == made.Secret || rotated.Old == nil || keyBody(t, *rotated.Old).Expires == "" || keyBody(t, rotated.Key).Team != "research" {
		t.Errorf("rotated: %+v", rotated)
	}
	var revoked Changed
	r.admin("POST", "/v1/keys/bob.2/revoke", `{"message": "lost"}`).wants(t, 200).into(t, &revoked)
	if !keyBody(t, *revoked.Object).Revoked || revoked.Revision.Message != "lost" {
		t.Errorf("revoked: %+v", revoked)
	}
	r.admin("POST", "/v1/keys/bob.2/revoke", "").wants(t, 200)
	r.admin("POST", "/v1/keys/bob.2/rotate", "").wants(t, 422)
	r.admin("DELETE", "/v1/keys/bob.2", "", "If-Match: *").wants(t, 200)

	const hashed = "0000000000000000000000000000000000000000000000000000000000000001"
	var imported KeyMade
	r.admin("POST", "/v1/keys", `{"id": "old", "team": "web", "sha256": "`+hashed+`"}`).wants(t, 201).into(t, &imported)
	if imported.Secret != "" || imported.Repeated || keyBody(t, imported.Key).SHA256 != hashed {
		t.Errorf("imported: %+v", imported)
	}
	everything := r.log.String()
	for _, path := range []string{"/v1/keys", "/v1/audit", "/v1/revisions", "/v1/revisions/1/diff?to=5", "/v1/status"} {
		everything += r.admin("GET", path, "").wants(t, 200).text
	}
	for _, secret := range []string{made.Secret, rotated.Secret} {
		if strings.Contains(everything, secret) {
			t.Error("a secret is told twice")
		}
	}
}

// TestAKeyInTheWrongPlaceIsNotRepeated, neither in the answer nor in the log.
func TestAKeyInTheWrongPlaceIsNotRepeated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	secret, _ := identity.NewKey()
	for _, res := range []response{
		r.admin("PUT", "/v1/keys/eve", `{"team": "web", "sha256": "`+secret+`"}`, "If-None-Match: *").wants(t, 422),
		r.admin("POST", "/v1/keys", `{"id": "eve", "team": "web", "sha256": "`+secret+`"}`).wants(t, 422),
		r.admin("POST", "/v1/keys", `{"id": "eve", "team": "`+secret+`"}`).wants(t, 422),
		r.admin("POST", "/v1/keys", `{"`+secret+`": "eve"}`).wants(t, 400),
		r.admin("GET", "/v1/teams?"+secret+"=1", "").wants(t, 400),
		r.admin("GET", "/v1/teams/"+secret, "").wants(t, 422),
	} {
		if strings.Contains(res.text, secret) {
			t.Errorf("the answer has it: %s", res.text)
		}
	}
	if strings.Contains(r.log.String(), secret) {
		t.Error("the log has it")
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var made TokenMade
	r.admin("POST", "/v1/tokens", `{"name": "ci", "role": "team-owner", "teams": ["web"], "expires": "2199-01-01T00:00:00Z"}`).wants(t, 201).into(t, &made)
	r.tokens["ci"] = made.Secret
	r.as("ci", "GET", "/v1/keys/shop", "").wants(t, 200)
	r.as("ci", "GET", "/v1/keys/alice", "").wants(t, 404)
	r.as("ci", "GET", "/v1/teams/research", "").wants(t, 404)
	r.as("ci", "POST", "/v1/keys", `{"id": "mine", "team": "web"}`).wants(t, 201)
	r.as("ci", "POST", "/v1/keys", `{"id": "theirs", "team": "research"}`).wants(t, 403)
	r.as("ci", "POST", "/v1/keys/alice/revoke", "").wants(t, 403)
	r.as("ci", "PUT", "/v1/keys/mine", `{"team": "research", "sha256": "0000000000000000000000000000000000000000000000000000000000000001"}`, "If-Match: *").wants(t, 403)
	r.as("ci", "POST", "/v1/batch", `{"changes": [{"kind": "team", "name": "web", "body": {"models": ["*"]}}]}`).wants(t, 403)
	var list List[Token]
	if r.admin("GET", "/v1/tokens", "").into(t, &list); len(list.Items) != 4 || strings.Contains(r.admin("GET", "/v1/tokens", "").text, made.Secret) {
		t.Errorf("tokens: %+v", list)
	}
	r.admin("POST", "/v1/tokens", `{"name": "ci", "role": "auditor"}`).wants(t, 409)
	r.admin("DELETE", "/v1/tokens/ci", "").wants(t, 204)
	r.as("ci", "GET", "/v1/keys/shop", "").wants(t, 401)
}

// TestWrongTokensAreSlowed, and right ones from the same address are not.
func TestWrongTokensAreSlowed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	wrong, _ := identity.NewKey()
	r.tokens["wrong"] = wrong
	if res := r.as("none", "GET", "/v1/teams", "").wants(t, 401); res.header.Get("WWW-Authenticate") == "" {
		t.Error("no WWW-Authenticate")
	}
	for i := range 15 { // the clock stands still
		want := http.StatusUnauthorized
		if i >= guessesFree {
			want = http.StatusTooManyRequests
		}
		if res := r.as("wrong", "GET", "/v1/teams", "").wants(t, want); (res.header.Get("Retry-After") == "7") != (want == http.StatusTooManyRequests) {
			t.Errorf("Retry-After: %q", res.header.Get("Retry-After"))
		}
	}
	r.admin("GET", "/v1/teams", "").wants(t, 200)
	for _, header := range []string{"Authorization: Basic eDp5", "Authorization: Bearer", "Authorization: bearer x"} {
		r.as("none", "GET", "/v1/teams", "", header).wants(t, 401)
	}
	r.as(hub.Role("none"), "GET", "/openapi.json", "").wants(t, 200)
}

// TestDatabaseAway: who cannot be told from others is not let in, and not taken for a guesser either.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.hub.Close(); err != nil {
		t.Fatal(err)
	}
	for range guessesFree + 1 {
		r.admin("GET", "/v1/teams", "").wants(t, 503)
	}
	if strings.Contains(r.log.String(), "a wrong token was shown") {
		t.Error("the token is called a wrong one")
	}
}
