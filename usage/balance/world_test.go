package balance

import (
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// world makes a random history of doors and workers, all of it as it should be.
type world struct {
	rand    *rand.Rand
	now     time.Time
	journal map[string][]*usagev1.Record // by source, in order
	epoch   map[string]uint64
	next    map[string]uint64 // sequence
	open    []*flight
	n       int
	ended   map[string]int // by outcome
}

// flight is a request that runs in the world.
type flight struct {
	admitted *usagev1.Record
	worker   int
}

var (
	worldDoors   = []string{"door/a", "door/b"}
	worldTeams   = []string{"research", "sales", "ops"}
	worldWorkers = []string{"worker/w0", "worker/w1", "worker/w2"}
	worldStart   = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
)

func newWorld(seed uint64) *world {
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 1)), now: worldStart, journal: map[string][]*usagev1.Record{},
		epoch: map[string]uint64{}, next: map[string]uint64{}, ended: map[string]int{},
	}
	for _, s := range append(append([]string{}, worldDoors...), worldWorkers...) {
		w.restart(s)
	}
	return w
}

func (w *world) restart(source string) {
	w.epoch[source], w.next[source] = max(uint64(w.now.Unix()), w.epoch[source]+1), 0
}

func (w *world) write(source string, r *usagev1.Record) {
	w.next[source]++
	r.Source, r.Epoch, r.Sequence = source, w.epoch[source], w.next[source]
	w.journal[source] = append(w.journal[source], r)
}

// live runs n requests to their ends.
func (w *world) live(n int) *world {
	for w.n < n || len(w.open) > 0 {
		w.now = w.now.Add(time.Duration(w.rand.IntN(2000)) * time.Millisecond)
		switch {
		case w.n < n && (len(w.open) == 0 || len(w.open) < 50 && w.rand.IntN(2) == 0):
			w.admit()
		default:
			i := w.rand.IntN(len(w.open))
			f := w.open[i]
			w.open[i] = w.open[len(w.open)-1]
			w.open = w.open[:len(w.open)-1]
			w.end(f)
		}
		if w.rand.IntN(2000) == 0 { // a worker is started again in peace
			w.restart(worldWorkers[w.rand.IntN(len(worldWorkers))])
		}
	}
	return w
}

func (w *world) admit() {
	id := fmt.Sprintf("a%06d", w.n)
	w.n++
	r := &usagev1.Record{
		Id: usage.AdmittedID(id), Kind: usage.KindAdmitted, Admission: id, Key: fmt.Sprint("key", w.rand.IntN(5)),
		Team: worldTeams[w.rand.IntN(len(worldTeams))], Model: "m", Endpoint: "e", Spoke: "s", Revision: 3, Operation: "chat",
		Stream: w.rand.IntN(2) == 0, AdmittedAt: stamp(w.now),
	}
	w.write(worldDoors[w.rand.IntN(len(worldDoors))], r)
	w.open = append(w.open, &flight{r, w.rand.IntN(len(worldWorkers))})
}

// end journals how a request ended: at each worker that took it, and at the door.
func (w *world) end(f *flight) {
	outcome := []string{usage.OutcomeComplete, usage.OutcomeComplete, usage.OutcomeComplete, usage.OutcomeClientCut, usage.OutcomeUpstreamCut,
		usage.OutcomeUpstreamError, usage.OutcomeNotServed}[w.rand.IntN(7)]
	w.ended[outcome]++
	attempt := uint32(1)
	for ; w.rand.IntN(10) == 0; attempt++ {
		w.serve(f, attempt, usage.OutcomeUpstreamError, 0)
		f.worker = (f.worker + 1) % len(worldWorkers)
	}
	u := bare(f.admitted, usage.KindUsage, usage.UsageID(f.admitted.Admission))
	u.Outcome, u.CountedFrom, u.EndedAt, u.Attempt = outcome, usage.CountedNone, stamp(w.now), attempt
	if outcome != usage.OutcomeNotServed {
		made := w.rand.Int64N(500)
		saw := made
		if outcome == usage.OutcomeClientCut || outcome == usage.OutcomeUpstreamCut {
			saw = w.rand.Int64N(made + 1)
		}
		s := w.serve(f, attempt, outcome, made)
		u.CountedFrom, u.PromptTokens, u.CompletionTokens, u.CachedTokens = usage.CountedEngine, s.PromptTokens, &saw, s.CachedTokens
		u.Worker = fmt.Sprintf("10.0.0.%d:8000", f.worker)
	}
	w.write(f.admitted.Source, u)
}

func (w *world) serve(f *flight, attempt uint32, outcome string, tokens int64) *usagev1.Record {
	r := bare(f.admitted, usage.KindServed, usage.ServedID(f.admitted.Admission, attempt, "main"))
	r.AdmittedAt, r.ClientRequestId = nil, ""
	r.Attempt, r.Outcome, r.CountedFrom, r.EndedAt = attempt, outcome, usage.CountedEngine, stamp(w.now)
	r.PromptTokens, r.CachedTokens, r.CompletionTokens = proto.Int64(int64(len(f.admitted.Id))), proto.Int64(3), &tokens
	w.write(worldWorkers[f.worker], r)
	return r
}

// spools are the journals as they are on disk.
func (w *world) spools() (items []Item) {
	for _, s := range append(append([]string{}, worldDoors...), worldWorkers...) {
		for i, r := range w.journal[s] {
			items = append(items, Item{Record: r, Lane: s, Place: fmt.Sprintf("%s, record %d", s, i)})
		}
	}
	return items
}

// topics are the journals as they are in Kafka: by kind and team, with parts of them twice.
func (w *world) topics() (items []Item) {
	lanes := map[string][]Item{}
	var names []string
	for _, s := range append(append([]string{}, worldDoors...), worldWorkers...) {
		list := w.journal[s]
		for from := 0; from < len(list); {
			to := min(from+1+w.rand.IntN(500), len(list))
			for times := 1 + w.rand.IntN(5)/4; times > 0; times-- { // a chunk is sent again
				for _, r := range list[from:to] {
					lane := r.Kind + "/" + r.Team
					if lanes[lane] == nil {
						names = append(names, lane)
					}
					lanes[lane] = append(lanes[lane], Item{Record: r, Lane: lane, Place: lane})
				}
			}
			from = to
		}
	}
	for _, name := range names {
		items = append(items, lanes[name]...)
	}
	return items
}
