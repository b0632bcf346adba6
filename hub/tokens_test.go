package hub

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spokegate/spokegate/identity"
)

func TestTokens(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		clock, ctx := newClock(), context.Background()
		h := opened(t, Config{Database: database, Now: clock.now})
		withTeam(t, h)
		_, secret, err := h.CreateToken(ctx, Commit{Actor: admin}, Token{Name: "olga", Role: RoleTeamOwner, Teams: []string{"t"}, Expires: clock.now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		var conflict *Conflict
		if _, _, err := h.CreateToken(ctx, Commit{Actor: admin}, Token{Name: "olga", Role: RoleAdmin}); !errors.As(err, &conflict) {
			t.Errorf("a second token of a name: %v", err)
		}
		who, ok, err := h.Authenticate(ctx, secret)
		if err != nil || !ok || who.Name != "olga" || who.Role != RoleTeamOwner || len(who.Teams) != 1 {
			t.Fatalf("%v, %v", who, ok)
		}
		other, _ := identity.NewKey()
		for _, wrong := range []string{"", "x", other, secret + "x", strings.ToUpper(secret)} {
			if _, ok, err := h.Authenticate(ctx, wrong); ok || err != nil {
				t.Errorf("%q passes", wrong)
			}
		}
		var forbidden *Forbidden
		if _, err := h.ListTokens(ctx, who); !errors.As(err, &forbidden) {
			t.Errorf("a team owner sees tokens: %v", err)
		}
		if err := h.RevokeToken(ctx, Commit{Actor: who}, "olga"); !errors.As(err, &forbidden) {
			t.Errorf("a team owner revokes tokens: %v", err)
		}
		if err := h.RevokeToken(ctx, Commit{Actor: admin}, "nobody"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		if err := h.RevokeToken(ctx, Commit{Actor: admin}, "olga"); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := opened(t, Config{Database: database, Now: clock.now}).Authenticate(ctx, secret); ok || err != nil {
			t.Error("a token that was revoked passes at another hub")
		}
		_, short, err := h.CreateToken(ctx, Commit{Actor: admin}, Token{Name: "short", Role: RoleAuditor, Expires: clock.now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		clock.add(time.Hour)
		if _, ok, err := h.Authenticate(ctx, short); ok || err != nil {
			t.Error("a token that has expired passes")
		}
		log, err := h.Audit(ctx, admin, AuditQuery{Kind: "token"})
		if err != nil || len(log) != 3 || log[1].Action != "revoke" || string(log[2].After) != `{"expires":"2026-11-29T14:05:00Z","name":"olga","role":"team-owner","teams":["t"]}` {
			t.Errorf("%+v, %v", log, err)
		}
	})
}

// TestLastUsed: to the minute, and not where somebody is committing.
func TestLastUsed(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		clock, ctx := newClock(), context.Background()
		h := opened(t, Config{Database: database, Now: clock.now, Poll: time.Hour})
		_, secret, err := h.CreateToken(ctx, Commit{Actor: admin}, Token{Name: "x", Role: RoleAuditor})
		if err != nil {
			t.Fatal(err)
		}
		_, _, _ = h.Authenticate(ctx, secret)
		used := func() time.Time {
			list, err := h.ListTokens(ctx, admin)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return list[0].LastUsed
		}
		if first := used(); !first.Equal(clock.now()) {
			t.Errorf("last used %v", first)
		}
		clock.add(30 * time.Second)
		_, _, _ = h.Authenticate(ctx, secret)
		if first := used(); !first.Equal(clock.now().Add(-30 * time.Second)) {
			t.Errorf("last used %v: want it no finer than a minute", first)
		}
	})
}

func TestTokensRefused(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		clock, ctx := newClock(), context.Background()
		h := opened(t, Config{Database: database, Now: clock.now})
		withTeam(t, h)
		for want, bad := range map[string]Token{
			"tokens.name: is not a name":                        {Name: "a b", Role: RoleAdmin},
			"tokens[x].role: want admin, team-owner or auditor": {Name: "x", Role: "root"},
			"tokens[x].teams: want at least one team":           {Name: "x", Role: RoleTeamOwner},
			"tokens[x].teams: only a team owner has teams":      {Name: "x", Role: RoleAdmin, Teams: []string{"t"}},
			"tokens[x].teams[1]: there is no team \"u\"":        {Name: "x", Role: RoleTeamOwner, Teams: []string{"t", "u"}},
			"tokens[x].expires: want a time to come":            {Name: "x", Role: RoleAdmin, Expires: clock.now()},
			"tokens[x].teams[0]: there is no team \"\\x00\"":    {Name: "x", Role: RoleTeamOwner, Teams: []string{"\x00"}},
			"tokens.name: is missing; want a name":              {Role: RoleAdmin},
		} {
			if _, _, err := h.CreateToken(ctx, Commit{Actor: admin}, bad); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v: %v, want %s", bad, err, want)
			}
		}
	})
}

// withTeam makes what a team t needs, and the team.
func withTeam(t *testing.T, h *Hub) {
	t.Helper()
	must(t, h, put(KindSpoke, "a", "{}"), put(KindEndpoint, "e", `{"spoke": "a"}`), put(KindModel, "m", `{"endpoint": "e"}`), put(KindTeam, "t", `{"models": ["m"]}`))
}

func TestBootstrap(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		ctx, file := context.Background(), filepath.Join(t.TempDir(), "token")
		h := opened(t, Config{Database: database})
		if _, err := h.Bootstrap(ctx, filepath.Join(file, "nowhere")); err == nil {
			t.Error("no file, and no error")
		}
		if made, err := h.Bootstrap(ctx, file); err != nil || !made {
			t.Fatal(made, err)
		}
		secret, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if who, ok, err := h.Authenticate(ctx, strings.TrimSpace(string(secret))); err != nil || !ok || who.Role != RoleAdmin {
			t.Error(who, ok, err)
		}
		if err := h.RevokeToken(ctx, Commit{Actor: admin}, "first"); err != nil {
			t.Fatal(err)
		}
		if made, err := h.Bootstrap(ctx, file+"2"); err != nil || made {
			t.Error("it is done once, also where that token was revoked", made, err)
		}
	})
}

// TestSecretsStayOut looks for secrets wherever the hub writes: its database, its log, its errors, its audit log.
func TestSecretsStayOut(t *testing.T) {
	ctx, database := context.Background(), filepath.Join(t.TempDir(), "hub.db")
	var log bytes.Buffer
	h := opened(t, Config{Database: database, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	withTeam(t, h)
	m, err := h.CreateKey(ctx, Commit{Actor: admin, IdempotencyKey: "x"}, KeySpec{ID: "k", Team: "t"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.RotateKey(ctx, Commit{Actor: admin, Message: "was " + m.Secret, IdempotencyKey: m.Secret, RequestID: m.Secret}, "k", "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := h.CreateToken(ctx, Commit{Actor: admin}, Token{Name: "x", Role: RoleAdmin})
	if err != nil {
		t.Fatal(err)
	}
	pasted, _ := identity.NewKey()
	var said strings.Builder
	for _, c := range []Change{
		put(KindKey, "p", `{"team": "t", "sha256": "`+pasted+`"}`), put(KindKey, pasted, `{}`), put(KindTeam, "t", `{"`+pasted+`": 1}`),
		put(KindSpoke, "b", `{"labels": {"x": "`+pasted+`"}, "`+pasted+`": 1}`), put(KindTeam, "t", `{"name": "`+pasted+`"}`),
		put(Kind(pasted), "x", `{}`), put(KindSpoke, "b", `{"labels": {"x": "`+pasted+`"}}`), put(KindSpoke, pasted, `{}`), put(KindEndpoint, "e", `{"placement": {"`+pasted+`": 1}}`),
	} {
		_, err := h.Commit(ctx, Commit{Actor: admin, Changes: []Change{c}})
		if err == nil {
			t.Errorf("%s was taken", c.Body)
			continue
		}
		said.WriteString(err.Error())
	}
	if _, err := h.CreateKey(ctx, Commit{Actor: admin}, KeySpec{ID: "q", Team: "t", SHA256: pasted}); err == nil {
		t.Error("a secret in the place of its hash")
	} else {
		said.WriteString(err.Error())
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(database + "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(data)
	}
	all := said.String() + log.String()
	for _, secret := range []string{m.Secret, r.Secret, token, pasted} {
		if len(secret) < 40 || strings.Contains(all, secret[6:]) {
			t.Errorf("a secret is written somewhere")
		}
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := opened(t, Config{Database: filepath.Join(t.TempDir(), "hub.db"), Reg: reg})
	must(t, h, put(KindSpoke, "a", "{}"))
	must(t, h, put(KindSpoke, "a", "{}"))
	_, _ = h.Commit(context.Background(), Commit{Actor: admin, Changes: []Change{put(KindTeam, "t", "{}")}})
	_, _ = h.Commit(context.Background(), Commit{Actor: Actor{Role: RoleAuditor}})
	want := `# HELP spokegate_hub_commits_total Commits, by what became of them.
# TYPE spokegate_hub_commits_total counter
spokegate_hub_commits_total{result="committed"} 1
spokegate_hub_commits_total{result="forbidden"} 1
spokegate_hub_commits_total{result="invalid"} 1
spokegate_hub_commits_total{result="unchanged"} 1
# HELP spokegate_hub_revision Number of the latest revision.
# TYPE spokegate_hub_revision gauge
spokegate_hub_revision 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spokegate_hub_commits_total", "spokegate_hub_revision"); err != nil {
		t.Error(err)
	}
}

// TestReports: what a spoke says again is not written again, but once a minute for its time.
func TestReports(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		clock, ctx := newClock(), context.Background()
		h := opened(t, Config{Database: database, Now: clock.now})
		must(t, h, put(KindSpoke, "a", "{}"))
		at := func(free int) time.Time {
			t.Helper()
			if err := h.Report(ctx, "a", SpokeReport{GPUs: []GPU{{"H100", 8, free}}, Version: "1"}); err != nil {
				t.Fatal(err)
			}
			list, err := h.Spokes(ctx, admin)
			if err != nil || len(list) != 1 || list[0].Report.GPUs[0] != (GPU{"H100", 8, free}) {
				t.Fatal(list, err)
			}
			return list[0].At
		}
		first := clock.now()
		for _, step := range []struct {
			after time.Duration
			free  int
			want  time.Duration
		}{{0, 8, 0}, {time.Second, 8, 0}, {time.Second, 7, 2 * time.Second}, {59 * time.Second, 7, 2 * time.Second}, {time.Second, 7, 62 * time.Second}} {
			clock.add(step.after)
			if got := at(step.free).Sub(first); got != step.want {
				t.Errorf("after %v more its report is of %v, want %v", step.after, got, step.want)
			}
		}
	})
}
