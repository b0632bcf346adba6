package policy

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

func TestSubject(t *testing.T) {
	set := withIssuer(randomSet(rand.New(rand.NewPCG(11, 3)), 4))
	set.Teams[0].Models, set.Teams[1].Models = []string{"*"}, []string{"x"}
	set.Keys = nil
	s := compiled(t, set)
	i := s.Issuers()[0]
	if i.TeamClaim != "team" || i.ModelsClaim != "" || i.Audience != "spokegate" {
		t.Errorf("%+v", i)
	}
	bob := s.Subject(i, "bob", "t0", nil)
	if bob.ID != "okta:bob" || bob.Team.Name != "t0" || bob.Refused(t0) != "" || bob.Networks != nil || len(s.Models(bob)) != 6 {
		t.Errorf("%+v may use %d models", bob, len(s.Models(bob)))
	}
	var own []string
	for _, l := range s.Limits(bob, s.Model("m0"), s.Model("m0")) {
		if l.Level == KeyLevel {
			own = append(own, fmt.Sprint(l.ID, " ", l.Owner, " ", l.Concurrency, " ", l.TokensPerDay))
		}
	}
	if got := strings.Join(own, ", "); got != "key/8:okta:bob/0: okta:bob 2 0, key/8:okta:bob/2:m0 okta:bob 0 1000001" {
		t.Errorf("limits %s", got)
	}
	if again := s.Subject(i, "bob", "t0", nil); again == bob || again.limits[0].ID != bob.limits[0].ID {
		t.Error("a subject's counters have other names the next time")
	}
	if other := s.Subject(i, "alice", "t0", nil); other.limits[0].ID == bob.limits[0].ID || bob.limits[0].Owner != "okta:bob" {
		t.Error("two subjects share a counter")
	}
	for _, tc := range []struct {
		narrow []string
		want   int
	}{{nil, 6}, {[]string{}, 0}, {[]string{"m*", "m0"}, 4}, {[]string{"", "**", "m0 ", "nothing"}, 0}, {[]string{"*"}, 6}} {
		if got := len(s.Models(s.Subject(i, "bob", "t0", tc.narrow))); got != tc.want {
			t.Errorf("narrowed to %q: %d models", tc.narrow, got)
		}
	}
	claims := *i
	claims.ModelsClaim = "models"
	if n := len(s.Models(s.Subject(&claims, "bob", "t0", nil))); n != 0 {
		t.Errorf("a JWT that lists no models may use %d", n)
	}
	if n := len(s.Models(s.Subject(i, "bob", "t1", []string{"*"}))); n != 1 {
		t.Errorf("a subject got %d models of a team with one", n)
	}
	if s.Subject(i, "eve", "t0", nil).Refused(t0) != "revoked" || !s.Revoked("okta:eve") || s.Revoked("okta:bob") {
		t.Error("eve passes, or bob does not")
	}
	for name, k := range map[string]*Key{
		"no issuer": s.Subject(nil, "bob", "t0", nil), "no subject": s.Subject(i, "", "t0", nil),
		"no team": s.Subject(i, "bob", "", nil), "another team": s.Subject(i, "bob", "nowhere", nil),
	} {
		if k != nil {
			t.Errorf("%s: %+v", name, k)
		}
	}
}

func TestIssuerNamesItsTeamsOnly(t *testing.T) {
	set := withIssuer(randomSet(rand.New(rand.NewPCG(1, 3)), 0))
	set.Issuers[0].Teams = []string{"t1"}
	s := compiled(t, set)
	if s.Subject(s.Issuers()[0], "bob", "t1", nil) == nil || s.Subject(s.Issuers()[0], "bob", "t0", nil) != nil {
		t.Error("an issuer names a team that it may not, or cannot name its own")
	}
}

// What validID must be the same as.
var idRE = regexp.MustCompile(idForm)

var subjectForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]*:(~[0-9a-f]{40}|[A-Za-z0-9][A-Za-z0-9._@-]{0,62})$`)

func TestSubjectIDs(t *testing.T) {
	seen := map[string]string{}
	for _, issuer := range []string{"a", "b", "a.b"} {
		for _, subject := range []string{
			"bob", "Bob", "bob@example.com", "auth0|5f7c8ec7c33c6c004bbafe82", " bob", "bob ", "a:b", "~bob", "", "é", "\xff", "a\nb", "-x",
			"~" + strings.Repeat("0", 40), strings.Repeat("0", 40), strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 1<<20),
		} {
			id, who := SubjectID(issuer, subject), fmt.Sprintf("%s %.50q", issuer, subject)
			if other, taken := seen[id]; taken {
				t.Errorf("%s and %s are both %s", who, other, id)
			}
			seen[id] = who
			if !subjectForm.MatchString(id) || idRE.MatchString(id) || len(id) > 127 || id != SubjectID(issuer, subject) {
				t.Errorf("%s: %q", who, id)
			}
		}
	}
	if got := SubjectID("okta", "bob@example.com"); got != "okta:bob@example.com" {
		t.Errorf("a plain subject is %s", got)
	}
}

func FuzzSubjectID(f *testing.F) {
	f.Add("bob", "auth0|5")
	f.Add("", "~")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, s := range []string{a, b} {
			if validID(s) != idRE.MatchString(s) {
				t.Fatalf("%q is an id: %v", s, validID(s))
			}
			if id := SubjectID("i", s); !subjectForm.MatchString(id) || !revocable(id) {
				t.Fatalf("%q is %q", s, id)
			}
		}
		if a != b && SubjectID("i", a) == SubjectID("i", b) {
			t.Fatalf("%q and %q are one", a, b)
		}
	})
}

func BenchmarkSubject(b *testing.B) {
	set := withIssuer(randomSet(rand.New(rand.NewPCG(1, 3)), 0))
	s, err := Compile(set, t0)
	if err != nil {
		b.Fatal(err)
	}
	i, m := s.Issuers()[0], s.Model("m0")
	b.ReportAllocs()
	for b.Loop() {
		k := s.Subject(i, "bob@example.com", "t0", nil)
		s.Limits(k, m, m)
	}
}
