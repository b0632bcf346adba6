package epp

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
)

// TestTrafficFollowsThePick, and the pick keeps to the subset, however that is written.
func TestTrafficFollowsThePick(t *testing.T) {
	one, two, three, second, six := lab.one.addr, lab.two.addr, lab.three.addr, lab.workers.second.addr, lab.six.addr
	host := func(addr string) string { h, _, _ := net.SplitHostPort(addr); return h }
	for name, c := range map[string]struct {
		subset *structpb.Value
		want   []string
	}{
		"no subset":                        {nil, []string{one, two, three, second, six}},
		"one worker":                       {list(three), []string{three}},
		"two workers":                      {list(one, two), []string{one, two}},
		"three workers":                    {list(one, two, three), []string{one, two, three}},
		"one of two ports of an address":   {list(second), []string{second}},
		"an address, and so all its ports": {list(host(one)), []string{one, second}},
		"IPv6":                             {list(six), []string{six}},
		"IPv6 without a port":              {list("[" + host(six) + "]"), []string{six}},
		"one string":                       {text(two), []string{two}},
		"one string, comma-separated":      {text(one + ", " + six), []string{one, six}},
		"some that nobody knows":           {list("127.0.0.99:1", host(two)+":1", three), []string{three}},
	} {
		for _, by := range []string{"http", "by-header"} {
			t.Run(name+"/"+by, func(t *testing.T) {
				for n := range 5 {
					r := call{listener: by, subset: c.subset, body: prompt(n)}.do(t)
					r.followed(t)
					for picked := range strings.SplitSeq(r.header.Get("X-Picked-Metadata"), ",") {
						if !slices.Contains(c.want, picked) {
							t.Errorf("%s is not in %v", picked, c.want)
						}
					}
				}
			})
		}
	}
}

func TestNobodyInTheSubsetIs503(t *testing.T) {
	for name, subset := range map[string]*structpb.Value{
		"an empty list":         list(),
		"an empty string":       text(""),
		"nobody known":          list("127.0.0.99:1"),
		"another port":          list("127.0.0.12:1"),
		"no address":            text("worker-7"),
		"neither list nor text": structpb.NewNumberValue(7),
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []call{{body: prompt(1)}, {method: "GET"}, {body: pattern(330_000), chunked: true, http2: true}} {
				c.subset = subset
				if r := c.do(t); r.status != http.StatusServiceUnavailable || r.header.Get("X-Served") != "" {
					t.Errorf("want 503, got %v", r)
				}
			}
		})
	}
}

// TestRequestsOfHeadersAlone are picked for at once.
func TestRequestsOfHeadersAlone(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		r := call{method: "GET", path: "/v1/models", subset: list(lab.two.addr), http2: http2}.do(t)
		r.followed(t)
		if r.got.Worker != lab.two.addr || r.got.Method != "GET" || r.got.Length != 0 {
			t.Errorf("the worker received %+v", r.got)
		}
	}
}

func TestApplicationProtocol(t *testing.T) {
	for listener, want := range map[string]string{"http": "HTTP/1.1", "h2c": "HTTP/2.0"} {
		for _, w := range lab.workers.all() {
			t.Run(listener+"/"+w.addr, func(t *testing.T) {
				r := call{listener: listener, subset: list(w.addr), body: prompt(1)}.do(t)
				r.followed(t)
				if r.got.Worker != w.addr || r.got.Proto != want {
					t.Errorf("%s received %s, want %s", r.got.Worker, r.got.Proto, want)
				}
			})
		}
	}
}

// TestWeightsBetweenTwoPools: the route shares requests out, and each pool's own picker chooses among its own workers.
func TestWeightsBetweenTwoPools(t *testing.T) {
	if lab.pickers.first == "" || lab.pickers.second == "" {
		t.Skipf("needs a picker for each of two pools: %s and %s", pickerAddrFirst, pickerAddrSecond)
	}
	const requests = 300
	first, second := 0, 0
	for n := range requests {
		r := call{listener: "weights", body: prompt(n)}.do(t)
		r.followed(t)
		switch r.got.Worker {
		case lab.one.addr, lab.two.addr:
			first++
		case lab.three.addr, lab.six.addr:
			second++
		}
	}
	// 6 standard deviations of a fair draw: a false alarm in 500 million runs.
	const expected, tolerance = requests * weightFirst / (weightFirst + weightSecond), 48
	if first+second != requests || first < expected-tolerance || first > expected+tolerance {
		t.Errorf("%d and %d of %d went to pools of weight %d and %d", first, second, requests, weightFirst, weightSecond)
	}
}
