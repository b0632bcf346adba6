package worker

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// pressed is a reading at so many seconds.
func pressed(second int, change func(*counters)) reading {
	r := reading{at: time.Unix(int64(second), 0), counters: counters{Running: new(int64(2)), Waiting: new(int64(0)), Cache: new(0.1), Preemptions: new(int64(5))}}
	if change != nil {
		change(&r.counters)
	}
	return r
}

func TestPressure(t *testing.T) {
	full := func(c *counters) { *c.Cache = 0.97 }
	queue := func(c *counters) { *c.Waiting = 9 }
	for name, test := range map[string]struct {
		readings []reading
		want     []string
	}{
		"well":                  {[]reading{pressed(0, nil), pressed(60, nil)}, nil},
		"full for a moment":     {[]reading{pressed(0, full), pressed(29, full)}, nil},
		"full for long":         {[]reading{pressed(0, full), pressed(2, full), pressed(31, full)}, []string{"memory: 97 % of the KV blocks in use for 31s"}},
		"full with a pause":     {[]reading{pressed(0, full), pressed(20, nil), pressed(22, full), pressed(40, full)}, nil},
		"a queue":               {[]reading{pressed(0, queue), pressed(30, queue)}, []string{"queue: 9 wait, 2 run, for 30s"}},
		"a queue that is short": {[]reading{pressed(0, func(c *counters) { *c.Waiting = 3 }), pressed(60, func(c *counters) { *c.Waiting = 3 })}, nil},
		"a queue beside as many that run": {[]reading{pressed(0, func(c *counters) { *c.Waiting, *c.Running = 9, 9 }),
			pressed(60, func(c *counters) { *c.Waiting, *c.Running = 9, 9 })}, nil},
		"preempted lately":            {[]reading{pressed(0, nil), pressed(10, func(c *counters) { *c.Preemptions = 8 })}, []string{"preemptions: 3 in the last minute"}},
		"preempted before":            {[]reading{pressed(0, func(c *counters) { *c.Preemptions = 1 }), pressed(10, nil), pressed(75, nil), pressed(80, nil)}, nil},
		"transfers over TCP":          {[]reading{pressed(0, nil), pressed(2, transfers(10, 4, 1e9))}, []string{"kv-transfer: 0.25 GB/s"}},
		"transfers over RDMA":         {[]reading{pressed(0, nil), pressed(2, transfers(10, 0.05, 1e9))}, nil},
		"too little to tell":          {[]reading{pressed(0, nil), pressed(2, transfers(1, 1, 1e6))}, nil},
		"slow, nobody tells bytes":    {[]reading{pressed(0, nil), pressed(2, transfers(10, 18, 0))}, []string{"kv-transfer: 1800 ms a transfer"}},
		"failed":                      {[]reading{pressed(0, nil), pressed(2, func(c *counters) { c.TransferFailed = 2 })}, []string{"kv-transfer: 2 failed in the last minute"}},
		"an engine that says nothing": {[]reading{{at: time.Unix(0, 0)}, {at: time.Unix(60, 0)}}, nil},
	} {
		var p pressure
		for _, r := range test.readings {
			p.take(r, nil)
		}
		if !slices.Equal(p.causes, test.want) {
			t.Errorf("%s: %q, want %q", name, p.causes, test.want)
		}
	}
}

func transfers(n int64, seconds, bytes float64) func(*counters) {
	return func(c *counters) { c.Transfers, c.TransferTime, c.TransferBytes = n, seconds, bytes }
}

// Of the past no more is kept than a minute needs.
func TestPressureForgets(t *testing.T) {
	var p pressure
	for i := range 1000 {
		p.take(pressed(2*i, nil), nil)
	}
	if len(p.past) > 40 {
		t.Errorf("%d readings are kept", len(p.past))
	}
}

func TestSortedCauses(t *testing.T) {
	got := sorted([]string{"kv-transfer: tcp", ""}, nil, []string{"kv-transfer: 0.2 GB/s", "hung: no token for 1m0s", "gpu: x"})
	if want := []string{"gpu: x", "hung: no token for 1m0s", "kv-transfer: tcp"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// What a DCGM exporter tells of our GPUs counts, of others' not; times that a clock was lowered count when they grow.
func TestGPUs(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "0,GPU-b")
	heat := 5
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/gpu/metrics" {
			http.Error(w, "", http.StatusNotFound)
		}
		fmt.Fprintf(w, `# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a"} 79
DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-b"} 0
DCGM_FI_DEV_XID_ERRORS{gpu="2",UUID="GPU-c"} 48
# TYPE DCGM_FI_DEV_THERMAL_VIOLATION counter
DCGM_FI_DEV_THERMAL_VIOLATION{gpu="1",UUID="GPU-b"} %d
`, heat)
	}))
	defer exporter.Close()
	at, err := url.Parse(exporter.URL + "/gpu/metrics")
	if err != nil {
		t.Fatal(err)
	}
	g := newGPUReader(at)
	if got := g.read(context.Background()); !slices.Equal(got, []string{"gpu: GPU 0 its last error was XID 79"}) {
		t.Errorf("%q", got)
	}
	heat++
	if got := g.read(context.Background()); !slices.Equal(got, []string{"gpu: GPU 0 its last error was XID 79", "gpu: GPU 1 slowed by heat"}) {
		t.Errorf("%q", got)
	}
	exporter.Close()
	if got := g.read(context.Background()); len(got) != 1 || !strings.HasPrefix(got[0], "gpu: its exporter cannot be read: ") {
		t.Errorf("%q", got)
	}
}
