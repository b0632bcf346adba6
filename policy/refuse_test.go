package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// TestCompileRefuses changes a good set as no file could, or as a file could too: Compile trusts nobody.
func TestCompileRefuses(t *testing.T) {
	refused(t, map[string]refusal{
		"short hash":     {func(s *policyv1.Set) { s.Keys[0].Keys[0].Sha256 = []byte{1, 2, 3} }, "keys[k0].sha256: is not a SHA-256: want 32 bytes"},
		"wrong shard":    {func(s *policyv1.Set) { s.Keys[0].Number++ }, "belongs to shard"},
		"shard too high": {func(s *policyv1.Set) { s.Keys = append(s.Keys, &policyv1.KeyShard{Number: 4096}) }, "keys[shard 4096]: element 1: want a number below 4096, each once"},
		"shard twice":    {func(s *policyv1.Set) { s.Keys = append(s.Keys, &policyv1.KeyShard{Number: s.Keys[0].Number}) }, "each once"},
		"NaN":            {func(s *policyv1.Set) { s.Platform = limited(rated(math.NaN())) }, "platform.limits[0].requests_per_second: want from"},
		"infinite":       {func(s *policyv1.Set) { s.Platform = limited(rated(math.Inf(1))) }, "platform.limits[0].requests_per_second: want from"},
		"negative":       {func(s *policyv1.Set) { s.Platform = limited(rated(-1)) }, "platform.limits[0].requests_per_second: want from"},
		"NaN weight": {func(s *policyv1.Set) {
			s.Endpoints[0].Routing = &policyv1.Routing{OverlapWeight: proto.Float64(math.NaN())}
		}, "overlap_weight: want a number from 0 to 1000"},
		"NaN miss weight": {func(s *policyv1.Set) {
			s.Endpoints[0].Routing = &policyv1.Routing{MissWeight: proto.Float64(math.NaN())}
		}, "miss_weight: want a number from 0 to 1000"},
		"NaN temperature": {func(s *policyv1.Set) {
			s.Endpoints[0].Routing = &policyv1.Routing{Temperature: proto.Float64(math.NaN())}
		}, "temperature: want a number from 0 to 1000"},
		"bad time":       {func(s *policyv1.Set) { s.Keys[0].Keys[0].ExpiresAt = &timestamppb.Timestamp{Seconds: math.MaxInt64} }, "expires: want a time after 1970"},
		"name not UTF-8": {func(s *policyv1.Set) { s.Teams[0].Name = "\xff" }, "teams[0].name: is not a name"},
		"wrong digest":   {func(s *policyv1.Set) { s.Revision = &policyv1.Revision{Digest: make([]byte, 32)} }, "revision.digest: does not fit the content"},
		"two keys, one hash": {func(s *policyv1.Set) {
			k := proto.CloneOf(s.Keys[0].Keys[0])
			k.Id = "other"
			s.Keys[0].Keys = append(s.Keys[0].Keys, k)
		}, `keys[other].sha256: this is also the hash of key "k0"`},
	})
}

// TestCompileRefusesQuotasAliasesCallers goes on, with what needs more than a name and a number.
func TestCompileRefusesQuotasAliasesCallers(t *testing.T) {
	refused(t, map[string]refusal{
		"quota of nothing": {func(s *policyv1.Set) { s.Platform = limited(&policyv1.Limit{TokensPerDay: proto.Uint64(0)}) }, "platform.limits[0].tokens_per_day: want a whole number from 1 to 1000000000000000"},
		"quota too large": {func(s *policyv1.Set) {
			s.Platform = limited(&policyv1.Limit{RequestsPerMonth: proto.Uint64(math.MaxUint64)})
		}, "platform.limits[0].requests_per_month: want a whole number from 1 to 1000000000000000"},
		"on_revoke of another release": {func(s *policyv1.Set) { s.Platform = &policyv1.Platform{OnRevoke: 7} }, "platform.on_revoke: want cut or finish"},
		"NaN cached weight": {func(s *policyv1.Set) {
			s.Platform = &policyv1.Platform{Tokens: &policyv1.Tokens{CachedWeight: proto.Float64(math.NaN())}}
		}, "platform.tokens.cached_weight: want a number from 0 to 1"},
		"no output": {func(s *policyv1.Set) {
			s.Platform = &policyv1.Platform{Tokens: &policyv1.Tokens{OutputMost: proto.Uint32(0)}}
		}, "platform.tokens.output_most: want a whole number from 1"},
		"weight 0": {func(s *policyv1.Set) {
			s.Models = append(s.Models, &policyv1.Model{Name: "a", Targets: []*policyv1.Target{{Model: "m0", Weight: proto.Uint32(0)}}})
		}, "models[a].targets[0].weight: want a whole number from 1 to 1000000; to send nothing there, take it out"},
		"alias of itself": {func(s *policyv1.Set) {
			s.Models = append(s.Models, &policyv1.Model{Name: "a", Targets: []*policyv1.Target{{Model: "a"}}})
		}, `models[a].targets[0].model: "a" is an alias itself`},
		"too many targets": {func(s *policyv1.Set) {
			s.Models = append(s.Models, &policyv1.Model{Name: "a", Targets: make([]*policyv1.Target, 65)})
		}, "models[a].targets: want at most 64"},
		"too many networks": {func(s *policyv1.Set) { s.Keys[0].Keys[0].Networks = make([]string, 257) }, "keys[k0].networks: want at most 256"},
		"too many labels": {func(s *policyv1.Set) {
			s.Keys[0].Keys[0].Labels = map[string]string{}
			for i := range 17 {
				s.Keys[0].Keys[0].Labels[fmt.Sprint(i)] = ""
			}
		}, "keys[k0].labels: want at most 16"},
		"label of control characters": {func(s *policyv1.Set) { s.Keys[0].Keys[0].Labels = map[string]string{"a": "\x1b[2J"} }, "keys[k0].labels.a: want up to 128 printable characters"},
		"path of control characters": {func(s *policyv1.Set) {
			s.Issuers = []*policyv1.Issuer{{Name: "i", Issuer: "x", Audience: "y", JwksFile: "/a\n"}}
		}, "issuers[i].jwks_file: want the whole path"},
		"too many issuers": {func(s *policyv1.Set) { s.Issuers = make([]*policyv1.Issuer, 65) }, "issuers: want at most 64"},
		"subject not UTF-8": {func(s *policyv1.Set) {
			s.Issuers = []*policyv1.Issuer{{Name: "i", Issuer: "x", Audience: "y", JwksFile: "/a", RevokedSubjects: []string{"ok", "\xff"}}}
		}, "issuers[i].revoked_subjects[1]: want what the claim sub says"},
	})
}

// refusal is a change to a good set, and what is said of it.
type refusal struct {
	change func(*policyv1.Set)
	want   string
}

func refused(t *testing.T, cases map[string]refusal) {
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := randomSet(rand.New(rand.NewPCG(1, 2)), 1)
			tc.change(set)
			s, err := Compile(set, t0)
			if s != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestCompileOfNothingRefusesEverybody(t *testing.T) {
	for _, set := range []*policyv1.Set{nil, {}} {
		s, err := Compile(set, t0)
		if err != nil {
			t.Fatal(err)
		}
		if s.Keys() != 0 || len(s.Endpoints()) != 0 || s.Revision() != 0 {
			t.Error("something came of nothing")
		}
	}
}

func limited(l *policyv1.Limit) *policyv1.Platform {
	return &policyv1.Platform{Limits: []*policyv1.Limit{l}}
}

func rated(r float64) *policyv1.Limit { return &policyv1.Limit{RequestsPerSecond: &r} }
