package policy

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

// TestEntries takes the example apart and puts it together again.
func TestEntries(t *testing.T) {
	src, err := os.ReadFile("../examples/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse("p", src)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := Entries("p", src)
	if err != nil {
		t.Fatal(err)
	}
	got, keys := &policyv1.Set{}, []*policyv1.Key(nil)
	for _, e := range entries {
		m, err := ParseEntry(e.Kind, e.Body)
		if err != nil {
			t.Fatalf("%s %s: %v", e.Kind, e.Name, err)
		}
		switch m := m.(type) {
		case *policyv1.Platform:
			got.Platform = m
		case *policyv1.Model:
			got.Models = append(got.Models, m)
		case *policyv1.Endpoint:
			got.Endpoints = append(got.Endpoints, m)
		case *policyv1.Team:
			got.Teams = append(got.Teams, m)
		case *policyv1.Issuer:
			got.Issuers = append(got.Issuers, m)
		case *policyv1.Key:
			keys = append(keys, m)
			if m.Id != e.Name {
				t.Errorf("key %s is called %s", m.Id, e.Name)
			}
		}
	}
	got.Keys = KeyShards(keys)
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestParseEntryRefuses(t *testing.T) {
	secret, _ := identity.NewKey()
	for _, tc := range []struct{ kind, body, want string }{
		{KindTeam, `{"name": "a", "models": ["m"], "color": "red"}`, `teams[a].color: unknown key; known here are `},
		{KindTeam, `{"name": "a", "models": []}`, `teams[a].models: is empty; want at least one entry, or leave the key out`},
		{KindTeam, `{"name": "a", "name": "b"}`, `teams: is not plain JSON: "name" is given twice`},
		{KindTeam, `{"name": "a"} {}`, `teams: is not one value of JSON: something stands behind it`},
		{KindTeam, `{"name": "a"`, `teams: is not JSON`},
		{KindTeam, ``, `teams: is not JSON`},
		{KindTeam, `[]`, `teams[0]: want a mapping, not a list`},
		{KindTeam, `{"name": 7}`, `teams[7].name: want text, not a number; put it in quotes`},
		{KindTeam, strings.Repeat("[", 50), `teams: is nested more than 32 levels deep`},
		{KindPlatform, `{"limits": [{"concurrency": -1}]}`, `platform.limits[0].concurrency: want a plain whole number above 0, like 100`},
		{KindPlatform, `{"on_revoke": "stop"}`, `platform.on_revoke: want cut or finish`},
		{KindKey, `{"id": "k", "sha256": "` + secret + `"}`, `keys[k].sha256: this is a key itself, not its hash`},
		{KindKey, `{"id": "k", "expires": "tomorrow"}`, `keys[k].expires: want a date and time with a zone`},
		{"Spoke", `{}`, `[0]: there is no such kind of element`},
	} {
		m, err := ParseEntry(tc.kind, []byte(tc.body))
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), secret[6:20]) {
			t.Errorf("%s %s: %v, %v; want %s", tc.kind, tc.body, m, err, tc.want)
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add(uint8(0), []byte(`{"name": "a", "models": ["m*"], "limits": [{"model": "m", "concurrency": 2}]}`))
	f.Add(uint8(1), []byte(`{"id": "k", "team": "a", "sha256": "00", "labels": {"a": "b"}, "revoked": true, "expires": null}`))
	f.Add(uint8(2), []byte(`{"price": {"input": "1.25", "output": 1e3}, "targets": [{}]}`))
	kinds := []string{KindTeam, KindKey, KindModel, KindEndpoint, KindIssuer, KindPlatform}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		m, err := ParseEntry(kinds[int(kind)%len(kinds)], body)
		if (m == nil) == (err == nil) {
			t.Fatalf("%v, %v", m, err)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\x1b\x00") {
			t.Fatalf("%q", err)
		}
	})
}
