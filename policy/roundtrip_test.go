package policy

import (
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// TestRoundTrip writes random sets as people would, and reads them back: nothing that a set can say is lost on the way
// through a file, nor on the way through the disk.
func TestRoundTrip(t *testing.T) {
	rnd, dir := rand.New(rand.NewPCG(21, 21)), t.TempDir()
	for n := range uint64(100) {
		want := randomSet(rnd, 6)
		text, err := json.MarshalIndent(written(reflect.ValueOf(fileOf(want))), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse("p.yaml", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !proto.Equal(got, want) {
			t.Fatalf("read   %v\nwrote %v", got, want)
		}
		got.Revision = &policyv1.Revision{Number: n + 1, Digest: Digest(want)}
		if err := Save(dir, got); err != nil {
			t.Fatal(err)
		}
		kept, err := loadSet(dir)
		if err != nil || !proto.Equal(kept, inOrder(got)) {
			t.Fatalf("%v: kept %v", err, kept)
		}
		if _, err := Compile(kept, t0); err != nil { // its digest fits too
			t.Fatal(err)
		}
	}
}

// TestOldLastGood: a set that an older release kept has the same digest and says the same.
func TestOldLastGood(t *testing.T) {
	set := &policyv1.Set{
		Endpoints: []*policyv1.Endpoint{{Name: "e"}}, Models: []*policyv1.Model{{Name: "m", Endpoint: "e"}},
		Platform: &policyv1.Platform{Limits: []*policyv1.Limit{{Concurrency: proto.Uint32(4)}}},
		Teams:    []*policyv1.Team{{Name: "t", Models: []string{"*"}}},
		Keys:     KeyShards([]*policyv1.Key{{Id: "k", Team: "t", Sha256: hashOf("k")}}),
	}
	const want = "cc9605bcd181462ccd69086926dc2856de59da44efaba565fb7d045bb71ea6aa"
	if got := hex.EncodeToString(Digest(set)); got != want {
		t.Errorf("digest %s, was %s", got, want)
	}
	s := compiled(t, set)
	m, k := s.Model("m"), s.keyByID("k")
	if m.EngineName != "m" || m.Tokens != (Tokens{OutputMost: 1024, CachedWeight: 1}) || m.Targets != nil || !s.CutsRevoked() ||
		k.Networks != nil || k.Labels != nil || len(s.Issuers()) != 0 || len(s.Limits(k, m, m)) != 1 {
		t.Errorf("%+v %+v", m, k)
	}
}

// fileOf is the file that says what a set says.
func fileOf(set *policyv1.Set) *File {
	f := &File{Platform: &PlatformEntry{
		Limits: limitEntries(set.Platform.Limits), Tokens: tokensEntry(set.Platform.Tokens),
		OnRevoke: []string{"", "cut", "finish"}[set.Platform.OnRevoke],
	}}
	for _, e := range set.Endpoints {
		f.Endpoints = append(f.Endpoints, &EndpointEntry{Name: e.Name, Routing: routingEntry(e.Routing)})
	}
	for _, m := range set.Models {
		e := &ModelEntry{Name: m.Name, Endpoint: m.Endpoint, EngineName: m.EngineName, Limits: limitEntries(m.Limits), Tokens: tokensEntry(m.Tokens), Price: priceEntry(m.Price)}
		for _, t := range m.Targets {
			e.Targets = append(e.Targets, &TargetEntry{Model: t.Model, Weight: t.Weight})
		}
		f.Models = append(f.Models, e)
	}
	for _, t := range set.Teams {
		f.Teams = append(f.Teams, &TeamEntry{Name: t.Name, Models: t.Models, Limits: limitEntries(t.Limits), Sheddable: t.Sheddable, Explain: t.Explain})
	}
	for _, k := range Keys(set) {
		f.Keys = append(f.Keys, &KeyEntry{ID: k.Id, Team: k.Team, SHA256: hex.EncodeToString(k.Sha256), Models: k.Models,
			Limits: limitEntries(k.Limits), Networks: k.Networks, Labels: k.Labels, Sheddable: k.Sheddable, Explain: k.Explain})
	}
	for _, i := range set.Issuers {
		f.Issuers = append(f.Issuers, &IssuerEntry{Name: i.Name, Issuer: i.Issuer, Audience: i.Audience, JWKSFile: i.JwksFile, JWKSURL: i.JwksUrl,
			Teams: i.Teams, TeamClaim: i.TeamClaim, ModelsClaim: i.ModelsClaim, Limits: limitEntries(i.Limits), RevokedSubjects: i.RevokedSubjects})
	}
	return f
}

func routingEntry(r *policyv1.Routing) *RoutingEntry {
	if r == nil {
		return nil
	}
	e := &RoutingEntry{
		OverlapWeight: r.OverlapWeight, MissWeight: r.MissWeight, Temperature: r.Temperature, BlockBytes: r.BlockBytes,
		ActiveWeight: r.ActiveWeight, CreditDecay: r.CreditDecay, AffinityWeight: r.AffinityWeight,
	}
	if t := r.Tiers; t != nil {
		e.Tiers = &TiersEntry{t.Host, t.Disk, t.Shared}
	}
	if b := r.Busy; b != nil {
		e.Busy = &BusyEntry{b.DecodeShare, b.PrefillTokens, b.Queue}
	}
	if s := r.Split; s != nil {
		e.Split = &SplitEntry{s.MinTokens, s.CachedShare}
	}
	return e
}

func limitEntries(limits []*policyv1.Limit) []*LimitEntry {
	var out []*LimitEntry
	for _, l := range limits {
		out = append(out, &LimitEntry{Model: l.Model, Concurrency: l.Concurrency, TokensPerMinute: l.TokensPerMinute,
			RequestsPerDay: l.RequestsPerDay, TokensPerDay: l.TokensPerDay, RequestsPerMonth: l.RequestsPerMonth, TokensPerMonth: l.TokensPerMonth})
	}
	return out
}

func tokensEntry(t *policyv1.Tokens) *TokensEntry {
	if t == nil {
		return nil
	}
	return &TokensEntry{OutputMost: t.OutputMost, CachedWeight: t.CachedWeight}
}

func priceEntry(p *policyv1.Price) *PriceEntry {
	if p == nil {
		return nil
	}
	return &PriceEntry{Currency: p.Currency, Input: (*Micros)(p.Input), Cached: (*Micros)(p.Cached), Output: (*Micros)(p.Output)}
}

// written is what the tags of a File's types make of a value, for JSON, which is YAML too. What is not given is left out.
func written(v reflect.Value) any {
	if m, is := v.Interface().(Micros); is {
		if m%2 == 0 {
			return json.Number(m.String()) // as it would stand without quotes
		}
		return m.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		return written(v.Elem())
	case reflect.Slice:
		var out []any
		for i := range v.Len() {
			out = append(out, written(v.Index(i)))
		}
		return out
	case reflect.Struct:
		out := map[string]any{}
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() && (f.Kind() != reflect.Slice || f.Len() > 0) {
				out[v.Type().Field(i).Tag.Get("yaml")] = written(f)
			}
		}
		return out
	}
	return v.Interface()
}
