package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

// Bounds of one key.
const (
	MaxNetworks = 256
	MaxLabels   = 16
	MaxLabel    = 128 // characters of a label's value
)

func (c *checker) keys(keys []*policyv1.Key) {
	ids, hashes := map[string]bool{}, map[identity.Hash]string{}
	for i, k := range keys {
		if c.plain(k, ids, hashes) {
			continue
		}
		path := label("keys", k.GetId(), i)
		if bad := BadID(k.GetId()); bad != "" {
			c.add(k, path, "id", -1, "%s", bad)
		}
		c.once(k, path, "id", k.GetId(), ids)
		c.hash(k, path, hashes)
		c.owner(k, path)
		if t := k.GetExpiresAt(); t != nil && (t.CheckValid() != nil || t.GetSeconds() <= 0) {
			// The year 1 would read as "never": see Key.Expires.
			c.add(k, path, "expires", -1, "want a time after 1970")
		}
		c.networks(k, path)
		c.labels(k, path)
		team := c.teams[k.GetTeam()].GetModels()
		c.eachLimits(k, path, k.GetLimits(), func(name string) bool {
			return anyMatches(team, name) && (len(k.GetModels()) == 0 || anyMatches(k.GetModels(), name))
		})
	}
}

// plain says that nothing is wrong with a key that says nothing beyond its team, and notes it; most of many keys are so, and the
// rest of the checks costs more than compiling them.
func (c *checker) plain(k *policyv1.Key, ids map[string]bool, hashes map[identity.Hash]string) bool {
	if len(k.GetModels())+len(k.GetLimits())+len(k.GetNetworks())+len(k.GetLabels()) > 0 || k.GetExpiresAt() != nil {
		return false
	}
	if !validID(k.GetId()) || ids[k.GetId()] || len(k.GetSha256()) != len(identity.Hash{}) || c.teams[k.GetTeam()] == nil {
		return false
	}
	hash := identity.Hash(k.GetSha256())
	if _, taken := hashes[hash]; taken {
		return false
	}
	ids[k.GetId()], hashes[hash] = true, k.GetId()
	return true
}

func (c *checker) hash(k *policyv1.Key, path string, hashes map[identity.Hash]string) {
	if len(k.GetSha256()) == 0 {
		c.add(k, path, "sha256", -1, "is missing; want the hash that `spokegate key new` prints")
		return
	}
	if len(k.GetSha256()) != len(identity.Hash{}) {
		c.add(k, path, "sha256", -1, "is not a SHA-256: want 32 bytes")
		return
	}
	h := identity.Hash(k.GetSha256())
	if other, taken := hashes[h]; taken {
		c.add(k, path, "sha256", -1, "this is also the hash of key %s; one secret can be one key only", quote(other))
		return
	}
	hashes[h] = k.GetId()
}

// owner checks what a key takes from its team.
func (c *checker) owner(k *policyv1.Key, path string) {
	if k.GetTeam() == "" {
		c.add(k, path, "team", -1, "is missing; want the name of a team")
		return
	}
	t, ok := c.teams[k.GetTeam()]
	if !ok {
		c.add(k, path, "team", -1, "there is no team %s", quote(k.GetTeam()))
		return
	}
	if len(k.GetModels()) == 0 {
		return
	}
	known := map[string]bool{}
	for m := range c.models {
		if anyMatches(t.GetModels(), m) {
			known[m] = true
		}
	}
	c.patterns(k, path, k.GetModels(), known, "no model of team "+quote(k.GetTeam())+" matches %s")
}

// networks: two that are one written differently are a mistake in one of them.
func (c *checker) networks(k *policyv1.Key, path string) {
	if len(k.GetNetworks()) > MaxNetworks {
		c.add(k, path, "networks", -1, "want at most %d", MaxNetworks)
		return
	}
	seen := map[netip.Prefix]bool{}
	for i, text := range k.GetNetworks() {
		p, bad := parseNetwork(text)
		switch {
		case bad != "":
			c.add(k, path, "networks", i, "%s", bad)
		case seen[p]:
			c.add(k, path, "networks", i, "%s is there twice", p)
		}
		seen[p] = true
	}
}

// parseNetwork reads a network or a single address. IPv4 written as IPv6 (::ffff:10.0.0.0/104) is IPv4.
func parseNetwork(text string) (p netip.Prefix, bad string) {
	const want = "is not a network: want one like 10.0.0.0/8 or 2001:db8::/32, or a single address"
	var err error
	if !strings.Contains(text, "/") {
		var a netip.Addr
		if a, err = netip.ParseAddr(text); err != nil || a.Zone() != "" {
			return p, want
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), ""
	}
	if p, err = netip.ParsePrefix(text); err != nil {
		return p, want
	}
	if p != p.Masked() {
		return p, "has bits set beyond its length; the network is " + p.Masked().String()
	}
	if a := p.Addr(); a.Is4In6() {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96) // all of its first 96 bits are set by the address's form
	}
	return p, ""
}

func (c *checker) labels(k *policyv1.Key, path string) {
	if len(k.GetLabels()) > MaxLabels {
		c.add(k, path, "labels", -1, "want at most %d", MaxLabels)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(k.GetLabels())) {
		bad := ""
		switch value := k.GetLabels()[name]; {
		case !labelRE.MatchString(name):
			bad = "is not a label's name: want up to 63 letters, digits and . _ / -, beginning with a letter or digit"
		case !printable(value) || utf8.RuneCountInString(value) > MaxLabel:
			bad = fmt.Sprintf("want up to %d printable characters", MaxLabel)
		case identity.Mask(value) != value:
			bad = "this looks like a key; labels are written into every record"
		default:
			continue
		}
		c.add(k, join(path, "labels"), name, -1, "%s", bad)
		c.problems[len(c.problems)-1].at = spot{owner: k, field: "labels", member: name, index: -1}
	}
}

// printable says that a text is UTF-8 that changes no terminal.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
