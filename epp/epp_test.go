package epp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pool is a picker over workers of the endpoint "large" that are ready and known to Envoy.
func pool(t *testing.T, addrs ...string) (*Picker, *fleet.Fleet) {
	t.Helper()
	f := fleet.New()
	for i, a := range addrs {
		if _, err := f.Join(fleet.Worker{Name: fmt.Sprintf("w%d", i), Endpoint: "large", Addr: a, Epoch: "1", State: fleet.Ready}); err != nil {
			t.Fatal(err)
		}
	}
	acknowledged(f, "large")
	return New(Config{Fleet: f, Policy: naming(t, "large"), Registerer: prometheus.NewRegistry()}), f
}

func acknowledged(f *fleet.Fleet, endpoints ...string) {
	has := map[string]uint64{}
	for _, e := range endpoints {
		has[e] = f.View().Version
	}
	f.Acked(has)
}

// naming is a policy with these endpoints, and no more than it must have beside.
func naming(t *testing.T, endpoints ...string) *policy.Current {
	t.Helper()
	c := &policy.Current{}
	name(t, c, endpoints...)
	return c
}

func name(t *testing.T, c *policy.Current, endpoints ...string) {
	t.Helper()
	_, h := identity.NewKey()
	models, list := "models:\n", "endpoints:\n"
	for _, e := range endpoints {
		models += fmt.Sprintf("  - {name: m-%s, endpoint: %s}\n", e, e)
		list += fmt.Sprintf("  - {name: %s}\n", e)
	}
	text := models + list + "teams:\n  - {name: t, models: [\"*\"]}\nkeys:\n  - {id: k, team: t, sha256: \"" + h.String() + "\"}\n"
	set, err := policy.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	snap, err := policy.Compile(set, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.Store(snap)
}

func load(p *Picker) (requests int) {
	for _, w := range p.router("large").Load() {
		requests += w.Requests
	}
	return requests
}

func chat(t *testing.T, text string) (*openai.Request, []byte) {
	t.Helper()
	return scanned(t, fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":%q}]}`, text))
}

func scanned(t *testing.T, body []byte) (*openai.Request, []byte) {
	t.Helper()
	req, err := openai.Scan(openai.Chat, body)
	if err != nil {
		t.Fatal(err)
	}
	return req, body
}

func TestPickReturnsToTheWorkerThatHoldsThePrefix(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
	now := time.Now()
	long := strings.Repeat("a long system prompt ", 200)
	req, body := chat(t, long)
	first, err := p.Pick(t.Context(), now, "large", router.Ask{}, req, body)
	if err != nil {
		t.Fatal(err)
	}
	first.Booking.Release()
	for i := range 20 {
		req, body := chat(t, long+fmt.Sprint(" and turn ", i))
		c, err := p.Pick(t.Context(), now, "large", router.Ask{}, req, body)
		if err != nil {
			t.Fatal(err)
		}
		if c.Addrs[0] != first.Addrs[0] || c.Overlap == 0 {
			t.Fatalf("turn %d went to %s with overlap %d, want %s\n%s", i, c.Addrs[0], c.Overlap, first.Addrs[0], c.Explain())
		}
		c.Booking.Release()
	}
}

// patience is for what must come, on a machine that is busy.
const patience = 3 * time.Minute

func TestPickerFollowsTheFleet(t *testing.T) {
	p, f := pool(t, "10.0.0.1:1", "10.0.0.2:1")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	f.Update("w0", fleet.Draining)
	req, body := chat(t, "x")
	deadline := time.Now().Add(patience)
	for {
		c, err := p.Pick(t.Context(), time.Now(), "large", router.Ask{}, req, body)
		if err != nil {
			t.Fatal(err)
		}
		c.Booking.Release()
		if len(c.Addrs) == 1 && c.Addrs[0] == "10.0.0.2:1" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still names %v", c.Addrs)
		}
	}
	if _, err := p.Pick(t.Context(), time.Now(), "other", router.Ask{}, req, body); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("an endpoint without workers: %v", err)
	}
}

// TestPickerFollowsThePolicy: an endpoint is there as long as the policy names it, and its workers once Envoy has them.
func TestPickerFollowsThePolicy(t *testing.T) {
	f := fleet.New()
	current := naming(t, "small")
	p := New(Config{Fleet: f, Policy: current, Registerer: prometheus.NewRegistry()})
	if _, err := f.Join(fleet.Worker{Name: "w", Endpoint: "large", Addr: "10.0.0.1:1", State: fleet.Ready}); err != nil {
		t.Fatal(err)
	}
	req, body := chat(t, "x")
	for _, c := range []struct {
		what   string
		change func()
		served bool
	}{
		{"not named", func() { acknowledged(f, "small") }, false},
		{"named, unknown to Envoy", func() { name(t, current, "small", "large") }, false},
		{"known to Envoy", func() { acknowledged(f, "small", "large") }, true},
		{"a new policy", func() { name(t, current, "large") }, true},
		{"not named again", func() { name(t, current, "small") }, false},
	} {
		c.change()
		p.follow()
		choice, err := p.Pick(t.Context(), time.Now(), "large", router.Ask{}, req, body)
		if (err == nil) != c.served {
			t.Errorf("%s: %v, %v", c.what, choice.Addrs, err)
		}
		if err == nil {
			choice.Booking.Release()
		}
	}
	if len(*p.routers.Load()) != 1 || p.router("small") == nil {
		t.Errorf("routers of %v, want one of small", *p.routers.Load())
	}
}

// TestRunWakesOnPolicyAndFleet: neither is polled.
func TestRunWakesOnPolicyAndFleet(t *testing.T) {
	f := fleet.New()
	current := naming(t, "small")
	p := New(Config{Fleet: f, Policy: current, Registerer: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	until := func(what string, fact func() bool) {
		t.Helper()
		for limit := time.Now().Add(patience); !fact(); time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("never %s", what)
			}
		}
	}
	if _, err := f.Join(fleet.Worker{Name: "w", Endpoint: "large", Addr: "10.0.0.1:1", State: fleet.Ready}); err != nil {
		t.Fatal(err)
	}
	acknowledged(f, "large") // as if Envoy had been told earlier: only the policy is missing
	name(t, current, "large")
	req, body := chat(t, "x")
	until("picked", func() bool {
		c, err := p.Pick(t.Context(), time.Now(), "large", router.Ask{}, req, body)
		if err == nil {
			c.Booking.Release()
		}
		return err == nil
	})
}

// TestSpan: a pick is told of within the span of who asks, and costs nothing more where there is no tracing.
func TestSpan(t *testing.T) {
	p, f := pool(t, "10.0.0.1:1")
	kept := tracetest.NewSpanRecorder()
	p.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(kept)).Tracer("")
	ctx, parent := p.Tracer.Start(t.Context(), "admission")
	req, body := chat(t, "x")
	c, err := p.Pick(ctx, time.Now(), "large", router.Ask{}, req, body)
	if err != nil {
		t.Fatal(err)
	}
	c.Booking.Release()
	f.Update("w0", fleet.Draining)
	p.follow()
	if _, err := p.Pick(ctx, time.Now(), "large", router.Ask{}, req, body); err == nil {
		t.Fatal("a draining worker was picked")
	}
	spans := kept.Ended()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	for i, want := range []codes.Code{codes.Unset, codes.Error} {
		if s := spans[i]; s.Name() != "pick" || s.Parent().SpanID() != parent.SpanContext().SpanID() || s.Status().Code != want {
			t.Errorf("span %v, status %v", s, s.Status())
		}
	}
	if got := spans[0].Attributes(); !slices.Contains(got, attribute.String("spokegate.worker.address", "10.0.0.1:1")) {
		t.Errorf("attributes %v", got)
	}
}

// TestEngineRestartIsForgotten: a new run of the engine behind the same address holds nothing.
func TestEngineRestartIsForgotten(t *testing.T) {
	f := fleet.New()
	p := New(Config{Fleet: f, Policy: naming(t, "large"), Registerer: prometheus.NewRegistry()})
	req, body := chat(t, strings.Repeat("words ", 500))
	overlap := func() int {
		c, err := p.Pick(t.Context(), time.Now(), "large", router.Ask{}, req, body)
		if err != nil {
			t.Fatal(err)
		}
		c.Booking.Release()
		return c.Overlap
	}
	run := func(epoch string) (leave func()) {
		leave, err := f.Join(fleet.Worker{Name: "w", Endpoint: "large", Addr: "10.0.0.1:1", Epoch: epoch, State: fleet.Ready})
		if err != nil {
			t.Fatal(err)
		}
		acknowledged(f, "large")
		p.follow()
		return leave
	}
	leave := run("1")
	if n := overlap(); n != 0 {
		t.Fatalf("overlap %d on an empty worker", n)
	}
	if n := overlap(); n == 0 {
		t.Fatal("what was just sent is not remembered")
	}
	leave()
	run("2")
	if n := overlap(); n != 0 {
		t.Errorf("overlap %d after the engine began anew", n)
	}
}
