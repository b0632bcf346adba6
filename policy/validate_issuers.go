package policy

import (
	"net/url"
	"path"
	"unicode/utf8"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// Bounds of issuers.
const (
	MaxIssuers = 64
	MaxSubject = 1024 // bytes of a subject that is revoked by name
)

func (c *checker) issuers(list []*policyv1.Issuer) {
	if len(list) > MaxIssuers {
		c.add(nil, "issuers", "", -1, "want at most %d", MaxIssuers)
	}
	names, signs := map[string]bool{}, map[[2]string]string{}
	for n, i := range list {
		at := label("issuers", i.GetName(), n)
		if bad := BadID(i.GetName()); bad != "" {
			c.add(i, at, "name", -1, "%s", bad)
		}
		c.once(i, at, "name", i.GetName(), names)
		c.issuer(i, at)
		// A JWT must be of one issuer: which team it may name hangs on it.
		who := [2]string{i.GetIssuer(), i.GetAudience()}
		if other, taken := signs[who]; taken {
			c.add(i, at, "audience", -1, "issuer %s has the same issuer and audience", quote(other))
		} else if who[0] != "" && who[1] != "" {
			signs[who] = i.GetName()
		}
	}
}

func (c *checker) issuer(i *policyv1.Issuer, at string) {
	c.claim(i, at, "issuer", i.GetIssuer(), "is missing; want what the claim iss says")
	c.claim(i, at, "audience", i.GetAudience(), "is missing; want what the claim aud must name")
	c.claim(i, at, "team_claim", i.GetTeamClaim(), "")
	c.claim(i, at, "models_claim", i.GetModelsClaim(), "")
	c.jwks(i, at)
	teams := map[string]bool{}
	for n, t := range i.GetTeams() {
		if _, ok := c.teams[t]; !ok {
			c.add(i, at, "teams", n, "there is no team %s", quote(t))
		} else if teams[t] {
			c.add(i, at, "teams", n, "%s is there twice", quote(t))
		}
		teams[t] = true
	}
	for n, s := range i.GetRevokedSubjects() {
		if s == "" || !utf8.ValidString(s) || len(s) > MaxSubject {
			c.add(i, at, "revoked_subjects", n, "want what the claim sub says, up to %d bytes", MaxSubject)
		}
	}
	c.eachLimits(i, at, i.GetLimits(), func(name string) bool {
		for _, t := range c.teams {
			if (len(teams) == 0 || teams[t.GetName()]) && anyMatches(t.GetModels(), name) {
				return true
			}
		}
		return false
	})
}

// claim checks the name or the value of a claim; missing says what is wrong with none.
func (c *checker) claim(i *policyv1.Issuer, at, field, value, missing string) {
	switch {
	case value == "" && missing != "":
		c.add(i, at, field, -1, "%s", missing)
	case value != "" && !claimRE.MatchString(value):
		c.add(i, at, field, -1, "want up to 256 characters without spaces")
	}
}

// jwks checks where the public keys are. What comes over plain HTTP could be anybody's.
func (c *checker) jwks(i *policyv1.Issuer, at string) {
	file, address := i.GetJwksFile(), i.GetJwksUrl()
	switch {
	case file == "" && address == "":
		c.add(i, at, "jwks_file", -1, "is missing; want a file with the issuer's public keys, or their https address as jwks_url")
	case file != "" && address != "":
		c.add(i, at, "jwks_url", -1, "want either jwks_file or jwks_url, not both")
	case file != "" && (!path.IsAbs(file) || len(file) > 1024 || !printable(file)):
		c.add(i, at, "jwks_file", -1, "want the whole path of a file, beginning with /")
	case address != "":
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" || len(address) > 1024 {
			c.add(i, at, "jwks_url", -1, "want an https address without a user, like https://id.example.com/.well-known/jwks.json")
		}
	}
}
