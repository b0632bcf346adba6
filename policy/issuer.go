package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

// Issuer signs JWTs that stand for keys.
type Issuer struct {
	// How its JWTs are verified. ModelsClaim lists what narrows the team's models, as a key's models do: where it is
	// set, a JWT without it may use nothing.
	identity.IssuerConfig

	teams  map[string]bool // that it may name; nil: all
	limits []Limit         // of each subject, without the owner and the counter's name
}

const defTeamClaim = "team"

func (b *builder) issuersOf(list []*policyv1.Issuer) {
	for _, i := range list {
		out := &Issuer{
			IssuerConfig: identity.IssuerConfig{
				Name: i.GetName(), Issuer: i.GetIssuer(), Audience: i.GetAudience(), JWKSFile: i.GetJwksFile(), JWKSURL: i.GetJwksUrl(),
				TeamClaim: cmp.Or(i.GetTeamClaim(), defTeamClaim), ModelsClaim: i.GetModelsClaim(),
			},
			limits: compileLimits(KeyLevel, "", i.GetLimits()),
		}
		if len(i.GetTeams()) > 0 {
			out.teams = map[string]bool{}
		}
		for _, t := range i.GetTeams() {
			out.teams[t] = true
		}
		for _, s := range i.GetRevokedSubjects() {
			b.subjects[SubjectID(i.GetName(), s)] = true
		}
		b.issuers = append(b.issuers, out)
	}
	slices.SortFunc(b.issuers, func(x, y *Issuer) int { return cmp.Compare(x.Name, y.Name) })
}

// Issuers are those whose JWTs stand for keys, sorted by name.
func (s *Snapshot) Issuers() []*Issuer { return s.issuers }

// subjectMark stands between an issuer and its subject. No key of a policy has it in its id, and no issuer in its name.
const subjectMark = ":"

// subjectHash begins a hash in place of a subject. No subject that stands as it is has it.
const subjectHash = "~"

// SubjectID is the key id of an issuer's subject: ISSUER:SUBJECT where the subject could be a key's id itself, else
// ISSUER:~ and 40 hex digits of its SHA-256. It is safe wherever a key's id is, the same from revision to revision, and no
// other subject's or key's.
func SubjectID(issuer, subject string) string {
	if validID(subject) {
		return issuer + subjectMark + subject
	}
	sum := sha256.Sum256([]byte(subject))
	return issuer + subjectMark + subjectHash + hex.EncodeToString(sum[:20])
}

// Subject is the key that a verified JWT of an issuer of this snapshot stands for: of the team that it names, narrowed to
// the models that it lists, with limits of its own. narrow is that list, whose entries match as those of a key's models do;
// nil says that there is none: a JWT of an issuer with a claim of models may then use nothing, for issuers leave out what is
// empty. Subject is nil where there is no subject, or no such team that the issuer may name. Expiry and networks are none:
// the JWT has its own. It may be revoked, as every key. It keeps narrow.
func (s *Snapshot) Subject(i *Issuer, subject, team string, narrow []string) *Key {
	t := s.teams[team]
	if i == nil || subject == "" || t == nil || i.teams != nil && !i.teams[team] {
		return nil
	}
	if narrow == nil && i.ModelsClaim != "" {
		narrow = []string{}
	}
	k := &Key{ID: SubjectID(i.Name, subject), Team: t, narrow: narrow}
	k.Revoked = s.subjectRevoked(k.ID)
	if len(i.limits) > 0 {
		k.limits = slices.Clone(i.limits)
	}
	for n := range k.limits {
		l := &k.limits[n]
		l.Owner, l.ID = k.ID, counter(KeyLevel, k.ID, l.Model)
	}
	return k
}

func (s *Snapshot) subjectRevoked(id string) bool { return s.subjects[id] || s.local.ids[id] }
