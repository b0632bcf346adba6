package epp

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/flight"
)

// poolOf is a picker over these workers of the endpoint "large", each with an address of its own: 10.0.0.1:1 and so on.
func poolOf(t *testing.T, workers ...fleet.Worker) *Picker {
	t.Helper()
	f := fleet.NewUnacknowledged()
	for i, w := range workers {
		w.Name, w.Addr, w.Endpoint, w.State = fmt.Sprint("w", i), fmt.Sprintf("10.0.0.%d:1", i+1), "large", fleet.Ready
		if _, err := f.Join(w); err != nil {
			t.Fatal(err)
		}
	}
	return New(Config{Fleet: f, Policy: naming(t, "large"), Registerer: prometheus.NewRegistry()})
}

// longChat is a request whose prompt is split where it can be.
func longChat(more string) []byte {
	return fmt.Appendf(nil, `{"model":"m"%s,"messages":[{"role":"user","content":%q}]}`, more, strings.Repeat("words without end ", 300))
}

// mutations is what the first answer with any does to the request's headers.
func mutations(rs []*extprocv3.ProcessingResponse) (set map[string]string, removed []string) {
	set = map[string]string{}
	for _, r := range rs {
		for _, m := range []*extprocv3.HeaderMutation{r.GetRequestHeaders().GetResponse().GetHeaderMutation(), r.GetRequestBody().GetResponse().GetHeaderMutation()} {
			for _, h := range m.GetSetHeaders() {
				set[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
			}
			removed = append(removed, m.GetRemoveHeaders()...)
		}
	}
	return set, removed
}

// asking is a whole request with these headers and this body.
func asking(body []byte, fields ...string) []*extprocv3.ProcessingRequest {
	h := bringing(fields...)
	h.GetRequestHeaders().EndOfStream = false
	return []*extprocv3.ProcessingRequest{h, reqBody(body, true)}
}

// TestRanksAreTold: one header for all who are named, so each of them has that rank, and what the client sent of it is gone.
func TestRanksAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		ranks []uint32 // of each worker
		told  bool
	}{
		"none has several":  {[]uint32{0, 1, 0}, false},
		"all have as many":  {[]uint32{4, 4, 4}, true},
		"some have fewer":   {[]uint32{4, 2, 0}, true},
		"one has only one":  {[]uint32{0, 4}, true},
		"one is all of it":  {[]uint32{8}, true},
		"each has only one": {[]uint32{1, 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var ws []fleet.Worker
			for _, n := range c.ranks {
				ws = append(ws, fleet.Worker{Ranks: n})
			}
			p := poolOf(t, ws...)
			seen := map[string]bool{}
			for n := range 12 { // they stay open, so each choice is another
				out := say(opened(t, p), asking(fmt.Appendf(nil, `{"model":"m","prompt":"%d"}`, n), "x-data-parallel-rank=7", "x-data-parallel-host-port=x")...)
				set, removed := mutations(out)
				rank, told := set["x-data-parallel-rank"]
				if named := strings.Split(set[envoy.DestinationKey], ","); told != c.told && len(named) > 1 {
					t.Errorf("told %v of %v: %v", told, c.ranks, set)
				}
				if told == slices.Contains(removed, "x-data-parallel-rank") || !slices.Contains(removed, "x-data-parallel-host-port") || set[envoy.RanksHeader] != "" {
					t.Errorf("set %v, taken away %q", set, removed)
				}
				for addr := range strings.SplitSeq(set[envoy.DestinationKey], ",") {
					var worker, at int
					if _, err := fmt.Sscanf(addr, "10.0.0.%d:1", &worker); err != nil {
						t.Fatal(err)
					}
					if told {
						if _, err := fmt.Sscan(rank, &at); err != nil || at >= int(max(c.ranks[worker-1], 1)) {
							t.Errorf("%s is told rank %q of %d", addr, rank, c.ranks[worker-1])
						}
					}
				}
				seen[rank] = true
			}
			if most := slices.Max(c.ranks); c.told && len(seen) < int(most) {
				t.Errorf("ranks %v were told of %v", seen, c.ranks)
			}
		})
	}
}

// TestPromptsAreSplit where there are both roles and the request lets itself be; the one that computes the prompt is booked until the
// first byte, or to the end of a stream that has none.
func TestPromptsAreSplit(t *testing.T) {
	both := []fleet.Worker{{Role: fleet.RoleDecode}, {Role: fleet.RolePrefill}}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(longChat(""))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		workers []fleet.Worker
		asks    []*extprocv3.ProcessingRequest
		want    string
	}{
		"a long prompt":            {both, asking(longChat("")), "10.0.0.2:1"},
		"instead of the client's":  {both, asking(longChat(""), "x-prefiller-host-port=10.9.9.9:1"), "10.0.0.2:1"},
		"said not to be packed":    {both, asking(longChat(""), "content-encoding=identity"), "10.0.0.2:1"},
		"buffered":                 {both, []*extprocv3.ProcessingRequest{mode(procv3.ProcessingMode_BUFFERED, asking(nil)[0]), reqBody(longChat(""), true)}, "10.0.0.2:1"},
		"packed":                   {both, asking(packed.Bytes(), "content-encoding=gzip"), ""},
		"a short prompt":           {both, asking([]byte(`{"model":"m","messages":[]}`)), ""},
		"two answers":              {both, asking(longChat(`,"n":2`)), ""},
		"no body":                  {both, []*extprocv3.ProcessingRequest{reqHeaders(true, nil)}, ""},
		"a body that is not seen":  {both, []*extprocv3.ProcessingRequest{mode(procv3.ProcessingMode_STREAMED, asking(nil)[0]), reqBody(longChat(""), true)}, ""},
		"nobody computes prompts":  {both[:1], asking(longChat("")), ""},
		"nobody has a role":        {[]fleet.Worker{{}, {}}, asking(longChat("")), ""},
		"nobody has another's":     {[]fleet.Worker{{}, {Role: fleet.RolePrefill}}, asking(longChat("")), ""},
		"of the rank that answers": {[]fleet.Worker{{Role: fleet.RoleDecode, Ranks: 4}, {Role: fleet.RolePrefill, Ranks: 4}}, asking(longChat("")), "10.0.0.2:1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(t, c.workers...)
			computing := func() (n int) {
				for _, l := range p.router("large").Load() {
					if l.Addr == "10.0.0.2:1" {
						n += l.Requests
					}
				}
				return n
			}
			st := opened(t, p)
			set, removed := mutations(say(st, c.asks...))
			if got := set["x-prefiller-host-port"]; got != c.want || slices.Contains(removed, "x-prefiller-host-port") {
				t.Errorf("set %v, taken away %q", set, removed)
			}
			if c.want == "" {
				return
			}
			if set[envoy.DestinationKey] != "10.0.0.1:1" || computing() != 1 || load(p) != 2 {
				t.Errorf("set %v, %d of %d bookings", set, computing(), load(p))
			}
			say(st, respHeaders(":status=200", "content-type=application/json"))
			if computing() != 1 {
				t.Error("computed before the first byte")
			}
			say(st, respBody([]byte("{"), false))
			if computing() != 0 || load(p) != 1 {
				t.Errorf("after the first byte: %d of %d bookings", computing(), load(p))
			}
			again := opened(t, p)
			other := longChat("")
			other = bytes.Replace(other, []byte("words"), []byte("other"), -1)
			say(again, asking(other)...)
			if again.end(); load(p) != 1 {
				t.Errorf("after a stream without an answer: %d bookings", load(p))
			}
			if st.end(); load(p) != 0 {
				t.Errorf("%d bookings are left", load(p))
			}
		})
	}
}

// TestForgedHeadersGoBeforeAnythingIsPicked, where headers must be answered first and may never be changed later.
func TestForgedHeadersGoBeforeAnythingIsPicked(t *testing.T) {
	for _, last := range []*extprocv3.ProcessingRequest{reqBody([]byte("{}"), true), reqTrailers()} {
		h := mode(procv3.ProcessingMode_BUFFERED, asking(nil, "x-prefiller-host-port=10.9.9.9:1", "x-data-parallel-rank=3")[0])
		out := say(opened(t, poolOf(t, fleet.Worker{})), h, last)
		if _, removed := mutations(out[:1]); !slices.Equal(removed, []string{"x-data-parallel-rank", "x-prefiller-host-port"}) {
			t.Errorf("taken away at once: %q", removed)
		}
		if _, removed := mutations(out[1:]); removed != nil {
			t.Errorf("and later: %q", removed)
		}
	}
}

type noFlights struct{}

func (noFlights) Book(string, flight.Booking) bool { return false }

// TestBehindOurOwnDoor each shim finds its rank in a list, and nothing is split, which only an admission can tell to shims.
func TestBehindOurOwnDoor(t *testing.T) {
	p := poolOf(t, fleet.Worker{Role: fleet.RoleDecode, Ranks: 2}, fleet.Worker{Ranks: 3}, fleet.Worker{Role: fleet.RolePrefill})
	st := opened(t, p)
	st.server.Flights, st.server.Endpoint = noFlights{}, ""
	asks := asking(longChat(""))
	h := asks[0].GetRequestHeaders().GetHeaders()
	h.Headers = append(h.Headers, &corev3.HeaderValue{Key: envoy.EndpointHeader, RawValue: []byte(envoy.ClusterName("large"))})
	set, _ := mutations(say(st, asks...))
	if got := set[envoy.RanksHeader]; got != "10.0.0.1:1=0,10.0.0.2:1=0" || set["x-data-parallel-rank"] != "" || set["x-prefiller-host-port"] != "" {
		t.Errorf("set %v", set)
	}
	if load(p) != 1 {
		t.Errorf("%d bookings", load(p))
	}
}
