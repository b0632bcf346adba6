package epp

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/openai"
)

// TestFaultsOfOtherPickers: what is known to go wrong elsewhere, by the name of the fault. Two are of scraping, and tests of package
// fleet/scrape: 11, metrics that are away stop all routing (TestMetricsDoNotDecide), and 12, idle workers cost cores
// (TestIdleWorkersCostLittle). test/epp shows most of these through a real Envoy, too.
func TestFaultsOfOtherPickers(t *testing.T) {
	for _, c := range []struct {
		fault string
		test  func(*testing.T)
	}{
		{"1 request trailers are not answered", faultTrailers},
		{"2 the status is looked up under another name", faultStatus},
		{"3 a subset fails open or never matches", faultSubset},
		{"4 a second end of stream corrupts the body", faultSecondEnd},
		{"5 repeated headers collapse to the last", faultRepeated},
		{"6 a usage event that is cut gives no tokens", faultCutUsage},
		{"7 large integers are broken", faultIntegers},
		{"8 two live requests with one id collide", faultIDs},
		{"9 no workers is another status than 503", faultNobody},
		{"10 not alive before the first word of workers", faultLiveness},
		{"13 a burst of equal requests lands on one worker", faultBurst},
		{"14 requests in flight are negative or forgotten", faultFlap},
		{"15 a large body comes back in one chunk", faultChunk},
	} {
		t.Run(c.fault, c.test)
	}
}

func faultTrailers(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	out := say(opened(t, p), reqHeaders(false, nil), reqBody([]byte("{}"), false), reqTrailers())
	if _, ends := returned(out); out[len(out)-1].GetRequestTrailers() == nil || ends != 0 {
		t.Errorf("answers\n%s", script(out))
	}
}

// noted is a booking that notes what it is told.
type noted struct {
	cached   []*int64
	first    int
	serving  []string
	released int
}

func (n *noted) Serving(addr string)  { n.serving = append(n.serving, addr) }
func (n *noted) FirstByte()           { n.first++ }
func (n *noted) Release()             { n.released++ }
func (n *noted) Served(cached *int64) { n.cached = append(n.cached, cached) }

// answeredWith is what a booking is told of an answer with these headers, whose body comes in these pieces.
func answeredWith(t *testing.T, p *Picker, headers []string, pieces ...string) (*noted, []byte) {
	st := opened(t, p)
	say(st, reqHeaders(false, nil), reqBody([]byte(`{"model":"m","messages":[]}`), true))
	st.booking.Release()
	n := &noted{}
	st.booking = n
	say(st, respHeaders(headers...))
	var back []byte
	for i, piece := range pieces {
		for _, r := range say(st, respBody([]byte(piece), i == len(pieces)-1)) {
			back = append(back, r.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody()...)
		}
	}
	return n, back
}

const (
	jsonAnswer = `{"id":"x","choices":[{"message":{"content":"é"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":7}}}`
	sseAnswer  = "data: {\"choices\":[{\"delta\":{\"content\":\"é\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":7}}}\n\ndata: [DONE]\n\n"
)

func faultStatus(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	for _, c := range []struct {
		headers string
		judged  bool
	}{
		{":status=200", true},
		{"status=503 :status=200", true},
		{":status=503", false},
		{"status=200 :status=500", false},
		{"status=200", false},
		{":status=200 content-encoding=gzip", false},
	} {
		n, _ := answeredWith(t, p, append(strings.Fields(c.headers), "content-type=application/json; charset=utf-8"), jsonAnswer)
		if (len(n.cached) == 1) != c.judged || n.released != 1 {
			t.Errorf("%s: %+v", c.headers, n)
		}
	}
}

func faultSubset(t *testing.T) {
	t.Run("through the protocol", TestSubset)
}

func faultSecondEnd(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	sent := []byte(`{"model":"m","messages":[]}`)
	body, ends := returned(say(opened(t, p), reqHeaders(false, nil), reqBody(sent, true), reqBody(sent, true), reqBody(nil, true)))
	if !bytes.Equal(body, sent) || ends != 1 {
		t.Errorf("%q with %d ends", body, ends)
	}
}

// faultRepeated: no answer names a header that is not ours, so none can be put in another's place.
func faultRepeated(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	req := reqHeaders(false, nil)
	out := say(opened(t, p), req, reqBody([]byte("{}"), true), respHeaders(":status=200", "set-cookie=a", "set-cookie=b"), respBody([]byte("x"), true))
	var names []string
	for _, r := range out {
		for _, m := range []*extprocv3.HeaderMutation{r.GetRequestHeaders().GetResponse().GetHeaderMutation(), r.GetResponseHeaders().GetResponse().GetHeaderMutation()} {
			for _, h := range m.GetSetHeaders() {
				names = append(names, h.GetHeader().GetKey())
			}
			names = append(names, m.GetRemoveHeaders()...)
		}
	}
	if !slices.Equal(names, []string{"x-gateway-destination-endpoint"}) {
		t.Errorf("changed are %q", names)
	}
}

// faultCutUsage cuts answers in two and in three, everywhere; they pass as they are.
func faultCutUsage(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	for kind, answer := range map[string]string{"application/json": jsonAnswer, openai.EventStream: sseAnswer} {
		for i := range len(answer) {
			n, back := answeredWith(t, p, []string{":status=200", "content-type=" + kind}, answer[:i/2], answer[i/2:i], answer[i:])
			if len(n.cached) != 1 || n.cached[0] == nil || *n.cached[0] != 7 || n.released != 1 {
				t.Fatalf("%s cut at %d: %+v", kind, i, n)
			}
			if string(back) != answer {
				t.Fatalf("%s cut at %d comes back as %q", kind, i, back)
			}
		}
	}
	n, _ := answeredWith(t, p, []string{":status=200", "content-type=application/json"}, jsonAnswer[:len(jsonAnswer)-1])
	if len(n.cached) != 0 || n.released != 1 {
		t.Errorf("of an answer that is not whole: %+v", n)
	}
}

func faultIntegers(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	sent := []byte(`{"model":"m","seed":9007199254740993,"messages":[ ],"x":1.10}`)
	if body, _ := returned(say(opened(t, p), reqHeaders(false, nil), reqBody(sent, true))); !bytes.Equal(body, sent) {
		t.Errorf("%s", body)
	}
}

func faultIDs(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1", "10.0.0.2:1")
	one, two := opened(t, p), opened(t, p)
	for _, st := range []*stream{one, two} {
		say(st, reqHeaders(false, nil)) // both are r-1
	}
	first, _ := returned(say(one, reqBody([]byte(`{"a":1}`), true)))
	second, _ := returned(say(two, reqBody([]byte(`{"b":2}`), true)))
	if string(first) != `{"a":1}` || string(second) != `{"b":2}` || load(p) != 2 {
		t.Errorf("%s and %s, %d booked", first, second, load(p))
	}
	one.end()
	if n := load(p); n != 1 {
		t.Errorf("%d booked when one of two has ended", n)
	}
}

func faultNobody(t *testing.T) {
	for name, st := range map[string]*stream{
		"no workers":          {},
		"all have left":       {},
		"none is ready":       {},
		"an unknown endpoint": {},
	} {
		p, f := pool(t)
		w := fleet.Worker{Name: "w", Endpoint: "large", Addr: "10.0.0.1:1", State: fleet.Starting}
		switch name {
		case "all have left":
			w.State = fleet.Ready
			leave, err := f.Join(w)
			if err != nil {
				t.Fatal(err)
			}
			acknowledged(f, "large")
			p.follow()
			leave()
			p.follow()
		case "none is ready":
			if _, err := f.Join(w); err != nil {
				t.Fatal(err)
			}
			p.follow()
		}
		*st = stream{server: server(p), traced: t.Context()}
		if name == "an unknown endpoint" {
			st.server.Endpoint = "other"
		}
		out := say(st, reqHeaders(false, nil), reqBody([]byte(`{}`), true))
		if len(out) != 1 || out[0].GetImmediateResponse().GetStatus().GetCode() != 503 {
			t.Errorf("%s: %s", name, script(out))
		}
	}
}

func faultLiveness(t *testing.T) {
	h := NewHealth()
	if got := asked(t, h); got != "liveness" {
		t.Errorf("serving before the first word: %q", got)
	}
}

// faultBurst: picks know of those before them though nothing has been answered yet.
func faultBurst(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1")
	_, short := chat(t, "hello")
	for range 40 {
		say(opened(t, p), reqHeaders(false, nil), reqBody(short, true))
	}
	for _, w := range p.router("large").Load() {
		if w.Requests != 10 {
			t.Errorf("%+v of 40 over four workers", w)
		}
	}
}

// faultFlap: an endpoint that goes and comes leaves no count behind, and no clock ends a request that runs.
func faultFlap(t *testing.T) {
	p, f := pool(t)
	join := func() (leave func()) {
		leave, err := f.Join(fleet.Worker{Name: "w", Endpoint: "large", Addr: "10.0.0.1:1", State: fleet.Ready})
		if err != nil {
			t.Fatal(err)
		}
		acknowledged(f, "large")
		p.follow()
		return leave
	}
	leave := join()
	st, stays := opened(t, p), opened(t, p)
	say(st, reqHeaders(true, nil))
	leave()
	p.follow()
	leave = join()
	say(stays, reqHeaders(true, nil))
	st.end()
	if n := load(p); n != 1 {
		t.Errorf("%d booked: one from before the flap has ended, one of after it runs", n)
	}
	late := opened(t, p)
	late.server.Now = func() time.Time { return time.Now().Add(48 * time.Hour) }
	say(late, reqHeaders(true, nil))
	late.end()
	if n := load(p); n != 1 {
		t.Errorf("%d booked two days later, while one runs", n)
	}
	leave()
	p.follow()
	stays.end()
	join()
	if n := load(p); n != 0 {
		t.Errorf("%d booked in the end", n)
	}
}

func faultChunk(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	sent := bytes.Repeat([]byte("0123456789"), 33_000)
	out := say(opened(t, p), reqHeaders(false, nil), reqBody(sent, true), respHeaders(), respBody(sent, true))
	for _, r := range out {
		for _, c := range []*extprocv3.CommonResponse{r.GetRequestBody().GetResponse(), r.GetResponseBody().GetResponse()} {
			if n := len(c.GetBodyMutation().GetStreamedResponse().GetBody()); n > 62_000 {
				t.Errorf("a chunk of %d bytes", n)
			}
		}
	}
	if body, ends := returned(out); !bytes.Equal(body, sent) || ends != 1 {
		t.Errorf("%d bytes with %d ends", len(body), ends)
	}
}
