package flight

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
)

func TestOpenFlightsAreCheap(t *testing.T) {
	const n = 10_000
	table := New(Config{Journal: discard{}, Limiter: nil})
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("5b1f6c0e-8f7e-4b53-9d2a-%012d", i)
	}
	leases := []string{"1:a", "2:b", "3:c"}
	before := heap()
	for _, id := range ids {
		table.Open(Admission{
			ID: id, Key: "key", Team: "team", Model: "model", Endpoint: "endpoint", Op: openai.Chat, ClientRequestID: strings.Clone(id), At: time.Now(),
		}, limits.Hold{Admission: id, Leases: leases})
		table.Book(id, &booking{})
		table.FirstByte(id, "10.0.0.1:8000", time.Now(), nil)
	}
	each := (heap() - before) / n
	t.Logf("%d bytes a flight", each)
	if each <= 0 || each > 1024 {
		t.Errorf("%d bytes a flight", each)
	}
	if table.Len() != n {
		t.Errorf("%d flights", table.Len())
	}
}

type discard struct{}

func (discard) Append(*usagev1.Record) {}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func BenchmarkFlight(b *testing.B) {
	r := &quiet{}
	table := New(Config{Journal: discard{}, Limiter: r})
	m, l := whole(), ended()
	ids := make([]string, 1024)
	for i := range ids {
		ids[i] = fmt.Sprint("a", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		id := ids[i%len(ids)]
		delete(table.core.recent.byID, id)
		table.Open(Admission{ID: id, Op: openai.Chat}, limits.Hold{Admission: id})
		table.Book(id, &booking{})
		table.FirstByte(id, "w", time.Time{}, nil)
		table.End(id, Facts{Metered: m})
		table.End(id, Facts{Logged: l})
	}
}

type quiet struct{}

func (*quiet) Renew(context.Context, time.Time, []limits.Hold) ([]limits.Hold, error) {
	return nil, nil
}
func (*quiet) Release(context.Context, time.Time, limits.Hold, limits.Used) error { return nil }
