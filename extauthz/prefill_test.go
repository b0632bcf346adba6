package extauthz

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/router"
)

// askedPicker stands for the picker, and keeps what it was told beside the prompt.
type askedPicker struct {
	hints  router.Ask
	choice router.Choice
}

func (p *askedPicker) Pick(_ context.Context, _ time.Time, _ string, hints router.Ask, _ *openai.Request, _ []byte) (router.Choice, error) {
	p.hints = hints
	return p.choice, nil
}

// TestTheLegsOfASplitRequest: the worker that computes the prompt has a context of its own, which is good for it alone, and all
// workers are told their ranks.
func TestTheLegsOfASplitRequest(t *testing.T) { both(t, testTheLegsOfASplitRequest) }

func testTheLegsOfASplitRequest(t *testing.T) {
	g := newGate(t)
	p := &askedPicker{choice: router.Choice{
		Addrs: []string{"10.0.0.1:1", "10.0.0.2:1", "[::1]:1"}, Ranks: []int{1, -1, 0}, Prefill: "10.0.1.1:1", PrefillRank: 3,
	}}
	g.Picker = p
	headers := func() map[string]string {
		resp, err := g.ask(t, t.Context())
		if err != nil || resp.GetOkResponse() == nil {
			t.Fatal(resp, err)
		}
		got := map[string]string{}
		for _, h := range resp.GetOkResponse().GetHeaders() {
			got[h.GetHeader().GetKey()] = h.GetHeader().GetValue()
		}
		return got
	}
	got := headers()
	if !p.hints.Split {
		t.Error("the picker was not told that the request can be split")
	}
	if want := "10.0.0.1:1=1,[::1]:1=0,10.0.1.1:1=3"; got[envoy.RanksHeader] != want {
		t.Errorf("ranks %q, want %q", got[envoy.RanksHeader], want)
	}
	main, err := g.verifier.Verify(got[envoy.ContextHeader], time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.verifier.Verify(got[envoy.PrefillContextHeader], time.Now()); !errors.Is(err, identity.ErrLeg) {
		t.Errorf("the prefill context as the main one: %v", err)
	}
	leg, err := g.verifier.VerifyLeg(got[envoy.PrefillContextHeader], identity.LegPrefill, time.Now())
	want := main
	want.Leg, want.Worker = identity.LegPrefill, "10.0.1.1:1"
	if err != nil || leg != want || main.Worker != "" {
		t.Errorf("leg %+v, %v; main %+v", leg, err, main)
	}
	p.choice = router.Choice{Addrs: []string{"10.0.0.1:1"}, Ranks: []int{-1}, PrefillRank: -1}
	if got := headers(); got[envoy.RanksHeader] != "" || got[envoy.PrefillContextHeader] != "" || len(got) != 3 {
		t.Errorf("without ranks and prefill: %v", got)
	}
	if g.overHTTP { // which no gateway speaks
		return
	}
	g.PickInHeader, p.choice.Addrs = true, []string{"10.0.0.1:1", "[::1]:1"}
	if got := headers()[envoy.DestinationKey]; got != "10.0.0.1:1,[::1]:1" {
		t.Errorf("in the header: %q", got)
	}
}
