package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/policy"
)

// revoking is a door's folder whose last good policy knows the key alice.
func revoking(t *testing.T) (dir string, hash identity.Hash) {
	t.Helper()
	dir = t.TempDir()
	_, hash = identity.NewKey()
	set, err := policy.Parse("p", fmt.Appendf(nil, `{models: [{name: m, endpoint: e}], endpoints: [{name: e}],
teams: [{name: t, models: [m]}], keys: [{id: alice, team: t, sha256: "%s"}],
issuers: [{name: okta, issuer: x, audience: y, jwks_file: /z}]}`, hash))
	if err != nil {
		t.Fatal(err)
	}
	set.Revision = &policyv1.Revision{Number: 7}
	if err := policy.NewKeeper(filepath.Join(dir, "policy")).Save(policy.NewCut(set)); err != nil {
		t.Fatal(err)
	}
	return dir, hash
}

func TestRevokeTellsWhatItDid(t *testing.T) {
	dir, hash := revoking(t)
	for _, step := range []struct {
		key     string
		undo    bool
		said    string
		warning string
	}{
		{"alice", false, "revoked: alice", ""},
		{"alice", false, "revoked here already: alice", ""},
		{hash.String(), false, "revoked: " + hash.String(), ""},
		{"okta:bob", false, "revoked: okta:bob", ""},
		{"alcie", false, "revoked: alcie", "revision 7 knows no key alcie; it is kept, and refused should it come"},
		{"alice", true, "no longer revoked here: alice", ""},
		{"alice", true, "alice is not revoked here; -list shows what is", ""},
	} {
		var out, warned bytes.Buffer
		r := revocation{dir: filepath.Join(dir, "policy"), key: step.key, undo: step.undo, out: &out, moment: time.Now(),
			warn: func(format string, args ...any) { fmt.Fprintf(&warned, format, args...) }}
		if err := r.edit(); err != nil {
			out.WriteString(err.Error())
		}
		if !strings.HasPrefix(out.String(), step.said) || warned.String() != step.warning {
			t.Errorf("%s, undo %v: says %q, warns %q", step.key, step.undo, &out, &warned)
		}
	}
	var out bytes.Buffer
	if err := (revocation{dir: filepath.Join(dir, "policy"), out: &out}).list(); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 3 || !strings.HasSuffix(lines[0], "Z  "+hash.String()) {
		t.Errorf("lists %q", &out)
	}
}

func TestRevokeWithoutPolicy(t *testing.T) {
	var out, warned bytes.Buffer
	r := revocation{dir: t.TempDir(), key: "alice", out: &out, warn: func(format string, args ...any) { fmt.Fprintf(&warned, format, args...) }}
	if err := r.edit(); err != nil || !strings.HasPrefix(warned.String(), "it is not known whether there is such a key: ") {
		t.Errorf("%v, warns %q", err, &warned)
	}
}

// TestRevokeArguments: flags stand on either side of KEY, and nothing is written before all of them are in order.
func TestRevokeArguments(t *testing.T) {
	dir, _ := revoking(t)
	secret, _ := identity.NewKey()
	ctx := context.Background()
	for _, tc := range []struct {
		args []string
		want string // in the error; "" for none
	}{
		{[]string{"-dir", dir, "alice"}, ""},
		{[]string{"bob", "-dir", dir}, ""},
		{[]string{"carol", "-issuer", "okta", "-dir", dir}, ""},
		{[]string{"-undo", "bob", "-dir", dir}, ""},
		{[]string{"-list", "-dir", dir}, ""},
		{[]string{"-dir", dir}, errUsage.Error()},
		{[]string{"-dir", dir, "dave", "erin"}, errUsage.Error()},
		{[]string{"dave", "-no-such"}, errUsage.Error()},
		{[]string{"-dir", filepath.Join(dir, "typo"), "dave"}, "no door keeps its policy here"},
		{[]string{"-dir", dir, secret}, "sha256sum"},
		{[]string{"-dir", dir, "two words"}, "is no key's id"},
	} {
		err := runPolicy(ctx, append([]string{"revoke"}, tc.args...))
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), secret)) {
			t.Errorf("%q: %v", tc.args, err)
		}
	}
	list, err := policy.LoadRevoked(filepath.Join(dir, "policy"))
	if err != nil || len(list) != 2 || list[0].Key != "alice" || list[1].Key != "okta:carol" {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "typo")); err == nil {
		t.Error("a folder was made for a typing error")
	}
}
