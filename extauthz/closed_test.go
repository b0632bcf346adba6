package extauthz

import (
	"context"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/policy"
)

// TestClosedDoorAdmitsNobody, on headers alone and with the body, and says why; it opens again by itself.
func TestClosedDoorAdmitsNobody(t *testing.T) { both(t, testClosedDoorAdmitsNobody) }

func testClosedDoorAdmitsNobody(t *testing.T) {
	g := newGate(t)
	why := "the door's policy is too old"
	g.Closed = func() string { return why }
	for name, ctx := range map[string]context.Context{"headers": head(), "body": context.Background()} {
		resp, err := g.ask(t, ctx)
		if err != nil {
			t.Fatal(err)
		}
		denial(t, resp, 503, "unavailable")
		if body := resp.GetDeniedResponse().GetBody(); !strings.Contains(body, why) {
			t.Errorf("%s: %s", name, body)
		}
	}
	why = ""
	if resp, err := g.ask(t, context.Background()); err != nil || resp.GetOkResponse() == nil {
		t.Errorf("open again: %v %v", resp, err)
	}
}

func TestWithoutPolicyNothingPasses(t *testing.T) { both(t, testWithoutPolicyNothingPasses) }

func testWithoutPolicyNothingPasses(t *testing.T) {
	g := newGate(t)
	g.Policy = &policy.Current{}
	resp, _ := g.ask(t, t.Context())
	denial(t, resp, 503, "unavailable")
	denial(t, answer{}.response(), 503, "unavailable") // the zero answer
}
