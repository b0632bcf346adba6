package envoy

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// whole compiles an expression as Envoy uses it: it must match from end to end.
func whole(t *testing.T, expr string) *regexp.Regexp {
	re, err := regexp.Compile("^(?:" + expr + ")$")
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return re
}

func TestAllBut(t *testing.T) {
	for _, word := range []string{"explain", "a", "aa", "a.b"} {
		re := whole(t, allBut(word))
		try := func(s string) {
			if got := re.MatchString(s); got != (s != word) {
				t.Errorf("all but %q: %q matches: %v", word, s, got)
			}
		}
		for i := range len(word) + 1 {
			for _, c := range []string{"", "x", "a", "e", "."} {
				try(word[:i] + c)
				try(word[:i] + c + word[i:])
			}
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			b := make([]byte, rnd.IntN(len(word)+2))
			for i := range b {
				b[i] = (word + "x.")[rnd.IntN(len(word)+2)]
			}
			try(string(b))
		}
	}
}

func TestAtMost(t *testing.T) {
	for _, n := range []int64{0, 1, 7, 9, 10, 19, 99, 100, 101, 999, 1000, 1005, 1909, 9090} {
		re := whole(t, atMost(n))
		for i := int64(0); i <= 11000; i++ {
			if got := re.MatchString(strconv.FormatInt(i, 10)); got != (i <= n) {
				t.Fatalf("at most %d: %d matches: %v", n, i, got)
			}
		}
		for _, s := range []string{"", "00", "01", "+1", "-1", "1 ", "1,1", "0x1", "1e1", strings.Repeat("9", 30)} {
			if re.MatchString(s) {
				t.Errorf("at most %d: %q matches", n, s)
			}
		}
	}
	re := whole(t, atMost(64<<10))
	for s, want := range map[string]bool{"65536": true, "65537": false, "65535": true, "70000": false, "9999": true, "100000": false} {
		if re.MatchString(s) != want {
			t.Errorf("at most 65536: %s matches: %v", s, !want)
		}
	}
}

func TestOwnedHeadersButExplain(t *testing.T) {
	owned := func(name string) bool {
		for _, m := range stripOwned() {
			k := m.GetRemoveOnMatch().KeyMatcher
			if re := k.GetSafeRegex(); re != nil && whole(t, re.Regex).MatchString(name) || k.GetPrefix() != "" && strings.HasPrefix(name, k.GetPrefix()) {
				return true
			}
		}
		return false
	}
	for name, want := range map[string]bool{
		ExplainHeader: false, ContextHeader: true, EndpointHeader: true, RefusedHeader: true, ClientRequestIDHeader: true,
		"x-spokegate-": true, "x-spokegate-explai": true, "x-spokegate-explain2": true, DestinationKey: true, ServedKey: true,
		"x-gateway-destination-endpoint-subset": true, "x-gateway-inference-fairness-id": true, "x-envoy-max-retries": true,
		"x-llm-d-inference-objective": true, "x-prefiller-host-port": true, "x-data-parallel-host-port": true,
		"x-session-id": false, "authorization": false, "x-request-ids": false, "content-type": false,
	} {
		if owned(name) != want {
			t.Errorf("%s is stripped: %v, want %v", name, !want, want)
		}
	}
}
