package flight

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a table with a clock, a limiter and a journal that note what happens.
type rig struct {
	*Table
	mu       sync.Mutex
	now      time.Time
	records  []*usagev1.Record
	released map[string][]limits.Used // admission → calls of Release
	renewed  map[string]int
	renewals int // calls of Renew
	onRenew  func(context.Context, []limits.Hold) (lost []limits.Hold, err error)
	onUsage  func(*usagev1.Record) // called under the table's lock
	changed  chan struct{}         // gets something after each record and renewal, if anybody listens
}

func newRig(cfg Config) *rig {
	r := &rig{
		now: time.Unix(1_700_000_000, 0), released: map[string][]limits.Used{}, renewed: map[string]int{}, changed: make(chan struct{}, 1),
	}
	cfg.Limiter, cfg.Journal, cfg.Spoke, cfg.Door = r, r, "spoke", "door"
	if cfg.Now == nil {
		cfg.Now = r.clock
	}
	r.Table = New(cfg)
	return r
}

func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	r.now = r.now.Add(d)
	r.mu.Unlock()
	r.expire(context.Background())
	r.renew(context.Background())
}

func (r *rig) note(f func()) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *rig) Append(rec *usagev1.Record) {
	r.note(func() { r.records = append(r.records, rec) })
	if r.onUsage != nil && rec.Kind == "usage" {
		r.onUsage(rec)
	}
}

func (r *rig) Release(ctx context.Context, _ time.Time, h limits.Hold, used limits.Used) error {
	r.note(func() { r.released[h.Admission] = append(r.released[h.Admission], used) })
	return ctx.Err()
}

func (r *rig) Renew(ctx context.Context, _ time.Time, hs []limits.Hold) (lost []limits.Hold, err error) {
	r.note(func() {
		r.renewals++
		for _, h := range hs {
			r.renewed[h.Admission]++
		}
	})
	if r.onRenew != nil {
		return r.onRenew(ctx, hs)
	}
	return nil, nil
}

func (r *rig) freed(id string) int { return len(r.settled(id)) }

// settled is with what the hold of an admission was released, each time.
func (r *rig) settled(id string) []limits.Used {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.released[id]
}

// of returns the records of one kind about one admission.
func (r *rig) of(id, kind string) (list []*usagev1.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.records {
		if rec.Admission == id && rec.Kind == kind {
			list = append(list, rec)
		}
	}
	return list
}

func (r *rig) open(id string) bool { return r.openFor(id, "key") }

func (r *rig) openFor(id, key string) bool { return r.openWith(id, key, hold(id)) }

func (r *rig) openWith(id, key string, h limits.Hold) bool {
	return r.Open(Admission{
		ID: id, Key: key, Team: "team", Model: "model", Endpoint: "endpoint", Revision: 3, Op: openai.Chat, Stream: true,
		ClientRequestID: "mine", RequestBytes: 100, At: r.clock(),
		PromptEstimate: 1000, CachedWeight: 0.25,
	}, h)
}

// hold of a place in one limit.
func hold(id string) limits.Hold { return limits.Hold{Admission: id, Leases: []string{"l"}} }

// quotas is a hold that counts in quotas too.
func quotas(id string, reserved int64) limits.Hold {
	return limits.Hold{Admission: id, Leases: []string{"l"}, Quotas: []string{"q"}, Reserved: reserved}
}

// one returns the only record of a kind about an admission.
func (r *rig) one(t *testing.T, id, kind string) *usagev1.Record {
	t.Helper()
	list := r.of(id, kind)
	if len(list) != 1 {
		t.Fatalf("%d records %s of %s", len(list), kind, id)
	}
	return list[0]
}

// booking notes what it is told.
type booking struct {
	mu       sync.Mutex
	serving  string
	begun    int
	released int
	reports  []*int64 // cached tokens
}

func (b *booking) Serving(w string) { b.mu.Lock(); b.serving = w; b.mu.Unlock() }
func (b *booking) Served(c *int64)  { b.mu.Lock(); b.reports = append(b.reports, c); b.mu.Unlock() }
func (b *booking) FirstByte()       { b.mu.Lock(); b.begun++; b.mu.Unlock() }
func (b *booking) Release()         { b.mu.Lock(); b.released++; b.mu.Unlock() }

func (b *booking) frees() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.released
}
