package main

import (
	"net"
	"strings"
	"testing"
	"time"
)

func TestClientReadsWhatTheEngineSays(t *testing.T) {
	e, err := newEngine()
	if err != nil {
		t.Fatal(err)
	}
	defer e.lis.Close()
	e.chunks.Store(5)
	c, err := dial(e.lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.net.Close()
	var delays []time.Duration
	c.delays = func(d time.Duration) { delays = append(delays, d) }
	for _, size := range []int{1 << 10, 330 << 10} { // on one connection, whole and streamed in turn
		a, err := c.do(requests("k", size, false)[0], "")
		if err != nil || a.events != 0 || a.bytes == 0 {
			t.Errorf("whole: %+v, %v", a, err)
		}
		a, err = c.do(requests("k", size, true)[different-1], "a-context")
		if err != nil || a.events != 5+2 {
			t.Errorf("stream: %+v, %v", a, err)
		}
	}
	if len(delays) != 10 {
		t.Errorf("%d delays, want one for each chunk", len(delays))
	}
	for _, d := range delays {
		if d < 0 || d > time.Minute {
			t.Errorf("a chunk took %v", d)
		}
	}
}

func TestABrokenAnswerIsAnError(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"refused":         {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy", "status 503: busy"},
		"whole, cut":      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "EOF"},
		"stream, cut":     {streamHead + "10\r\ndata: {}\n\n", "EOF"},
		"stream, no end":  {streamHead + "a\r\ndata: {}\n\n\r\n0\r\n\r\n", "broke off after 1 events"},
		"nothing at all":  {"", "EOF"},
		"head, then none": {"HTTP/1.1 200 OK\r\n", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			go func() {
				_, _ = server.Write([]byte(c.answer))
				server.Close()
			}()
			got, err := over(client).read()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestRateIsTheMedianSlices(t *testing.T) {
	c := &client{slices: []int{5, 5, 5, 0, 0, 0, 0, 5, 5, 5, 5, 5, 1}}
	if got := rate([]*client{c, {slices: []int{1, 1, 1}}}, 12*slice+slice/2); got != 100 {
		t.Errorf("%v a second, want 100: a stall of four slices is none of ours", got)
	}
	if got := rate([]*client{{slices: []int{4, 4}}}, 2*slice); got != 80 {
		t.Errorf("%v a second, want 80: too short for slices", got)
	}
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	f := compared("x", "ms", "", []float64{2, 40, 6}, []float64{1, 10, 3})
	if *f.Ratio != 2 || *f.Against != 3 || f.Value != 6 || f.low != 2 || f.high != 4 {
		t.Errorf("%+v, ratio %v, against %v", f, *f.Ratio, *f.Against)
	}
	if p := percentile([]time.Duration{3e6, 1e6, 2e6}, 50); p != 2 {
		t.Errorf("p50 %v ms", p)
	}
}

func TestBreachesAreToldOnceWithTheirNumber(t *testing.T) {
	var l loaded
	l.promise(true, "never said")
	if l.verdict() != nil {
		t.Error(l.verdict())
	}
	l.promise(false, "record of %s", "a")
	l.promise(false, "record of %s", "b")
	if got := l.verdict().Error(); got != "broken promises:\n  record of a (and 1 more such)" {
		t.Errorf("%q", got)
	}
}
