package extauthz

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/router"
)

// sharing are workers, and what each shares with the door.
func sharing(n int) (addrs []string, all map[string]identity.Secret) {
	all = map[string]identity.Secret{}
	for i := range n {
		addr := fmt.Sprintf("10.0.0.%d:1", i)
		addrs, all[addr] = append(addrs, addr), identity.NewSecret()
	}
	return addrs, all
}

// knowing are verifiers as workers have them that share these secrets with the door.
func knowing(all map[string]identity.Secret, addrs []string) (list []*identity.Verifier) {
	for _, a := range addrs {
		v := identity.NewVerifier("large")
		v.SetSecret(all[a])
		list = append(list, v)
	}
	return list
}

// A context is by MAC only where all the workers that are named share a secret with the door; whichever it is, it says the same.
func TestContextsAreByMacWhereAllShareASecret(t *testing.T) {
	both(t, testContextsAreByMacWhereAllShareASecret)
}

func testContextsAreByMacWhereAllShareASecret(t *testing.T) {
	addrs, all := sharing(2 * identity.MaxSecrets)
	find := func(addr string) (identity.Secret, bool) {
		s, ok := all[addr]
		return s, ok
	}
	for name, c := range map[string]struct {
		secrets func(string) (identity.Secret, bool)
		addrs   []string
		prefill string
		mac     bool
	}{
		"one worker":         {find, addrs[:1], "", true},
		"as many as may be":  {find, addrs[:identity.MaxSecrets], "", true},
		"and a prefiller":    {find, addrs[:2], addrs[2], true},
		"one too many":       {find, addrs[:identity.MaxSecrets+1], "", false},
		"an old shim":        {find, []string{addrs[0], "10.0.1.1:1", addrs[1]}, "", false},
		"no secrets at all":  {nil, addrs[:1], "", false},
		"a picker behind us": {find, nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			g.Secrets = c.secrets
			g.Picker = pickerFunc(func() (router.Choice, error) { return router.Choice{Addrs: c.addrs, Prefill: c.prefill}, nil })
			if c.addrs == nil {
				g.Picker = nil
			}
			for n := range 2 {
				resp, err := g.ask(t, context.Background(), set("x-request-id", fmt.Sprint("r-", n)))
				if err != nil {
					t.Fatal(err)
				}
				list := resp.GetOkResponse().GetHeaders()
				token := header(list, envoy.ContextHeader)
				if mac := strings.HasPrefix(token, "m."); mac != c.mac {
					t.Fatalf("by MAC: %v", mac)
				}
				if c.prefill != "" && strings.HasPrefix(header(list, envoy.PrefillContextHeader), "m.") {
					t.Error("the leg for the prefiller is by MAC")
				}
				verifiers := []*identity.Verifier{g.verifier}
				if c.mac {
					verifiers = knowing(all, c.addrs)
				}
				for _, v := range verifiers {
					got, err := v.Verify(token, g.Now())
					want := identity.Context{Admission: fmt.Sprint("r-", n), Door: "door-1", Key: "k1", Team: "t1", Model: "cheap", Endpoint: "large",
						Revision: got.Revision, Body: identity.BodyDigest([]byte(`{"model":"cheap","messages":[]}`))}
					if err != nil || got != want {
						t.Errorf("got %+v, %v\nwant %+v", got, err, want)
					}
				}
			}
			mac, signed := testutil.ToFloat64(g.metrics.byMac), testutil.ToFloat64(g.metrics.bySignature)
			if c.mac && (mac != 2 || signed != 0) || !c.mac && (mac != 0 || signed != 2) {
				t.Errorf("counted %v by MAC and %v signed", mac, signed)
			}
		})
	}
}
