package balance

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	ended   map[string]int          // by outcome
	engine  map[string]*worldEngine // by worker
	since   map[string]uint64       // by source: records behind its last checkpoint
	body    map[*usagev1.Record][]byte
}

// worldEngine is an engine that counts by itself.
type worldEngine struct {
	run                string
	readings, probes   uint64
	prompt, completion int64
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
	worldSources = slices.Concat(worldDoors, worldWorkers)
	worldStart   = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
)

func newWorld(seed uint64) *world {
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 1)), now: worldStart, journal: map[string][]*usagev1.Record{},
		epoch: map[string]uint64{}, next: map[string]uint64{}, ended: map[string]int{}, engine: map[string]*worldEngine{}, since: map[string]uint64{},
		body: map[*usagev1.Record][]byte{},
	}
	for _, s := range worldSources {
		w.restart(s)
	}
	return w
}

func (w *world) restart(source string) {
	w.stop(source)
	w.epoch[source], w.next[source] = max(uint64(w.now.Unix()), w.epoch[source]+1), 0
	if strings.HasPrefix(source, "worker/") {
		w.engine[source] = &worldEngine{run: fmt.Sprint("run", w.epoch[source]), prompt: w.rand.Int64N(100), completion: w.rand.Int64N(100)}
		w.read(source, usage.MomentFirst)
	}
}

// stop ends a source's epoch in peace.
func (w *world) stop(source string) {
	if w.next[source] == 0 {
		return
	}
	if w.engine[source] != nil {
		w.read(source, usage.MomentLast)
	}
	w.checkpoint(source, true)
}

// read journals what a worker's engine has counted.
func (w *world) read(worker, moment string) {
	e := w.engine[worker]
	e.readings++
	w.write(worker, &usagev1.Record{
		Id: usage.EngineID(worker, e.run, e.readings), Kind: usage.KindEngine, EngineEpoch: e.run, EndedAt: stamp(w.now),
		Engine: &usagev1.EngineCounters{Moment: moment, PromptTokens: proto.Int64(e.prompt), CompletionTokens: proto.Int64(e.completion)},
	})
}

// probe lets a worker ask its engine for a token.
func (w *world) probe(worker string) {
	e := w.engine[worker]
	e.probes++
	e.prompt, e.completion = e.prompt+2, e.completion+1
	w.write(worker, &usagev1.Record{
		Id: usage.ProbeID(worker, e.run, e.probes), Kind: usage.KindProbe, EngineEpoch: e.run, EndedAt: stamp(w.now), Outcome: usage.OutcomeComplete,
		CountedFrom: usage.CountedEngine, PromptTokens: proto.Int64(2), CompletionTokens: proto.Int64(1),
	})
}

// checkpoint journals one. Its digest and its signature are set by seal.
func (w *world) checkpoint(source string, closing bool) {
	c := &usagev1.Checkpoint{Epoch: w.epoch[source], Sequence: w.next[source], Count: w.since[source], Closing: closing}
	w.write(source, &usagev1.Record{
		Id: usage.CheckpointID(source, c.Epoch, c.Sequence), Kind: usage.KindCheckpoint, EndedAt: stamp(w.now), Checkpoint: c,
	})
	w.since[source] = 1 // itself
	if closing {
		w.since[source] = 0
	}
}

func (w *world) write(source string, r *usagev1.Record) {
	w.next[source]++
	w.since[source]++
	r.Source, r.Epoch, r.Sequence = source, w.epoch[source], w.next[source]
	w.journal[source] = append(w.journal[source], r)
}

// live runs n requests to their ends.
func (w *world) live(n int) *world {
	for w.n < n || len(w.open) > 0 {
		w.now = w.now.Add(time.Duration(w.rand.IntN(8000)) * time.Millisecond)
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
		worker := worldWorkers[w.rand.IntN(len(worldWorkers))]
		switch w.rand.IntN(min(2000, n)) {
		case 0: // a worker is started again in peace
			w.restart(worker)
		case 1, 2, 3, 4:
			w.probe(worker)
		case 5, 6, 7, 8:
			w.read(worker, usage.MomentIdle)
		case 9:
			w.checkpoint(worker, false)
		case 10:
			w.checkpoint(worldDoors[w.rand.IntN(len(worldDoors))], false)
		}
	}
	for _, s := range worldSources {
		w.stop(s)
	}
	w.seal()
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
		s := w.serve(f, attempt, outcome, made)
		saw := *s.CompletionTokens
		if outcome == usage.OutcomeClientCut || outcome == usage.OutcomeUpstreamCut {
			saw = w.rand.Int64N(saw + 1)
		}
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
	e := w.engine[worldWorkers[f.worker]]
	r.EngineEpoch = e.run
	if cut := outcome != usage.OutcomeComplete; !cut || w.rand.IntN(4) > 0 { // the engine may notice before it begins, or late
		e.prompt, e.completion = e.prompt+*r.PromptTokens, e.completion+tokens
		if cut {
			e.completion += w.rand.Int64N(513)
		}
	} else {
		tokens = 0
	}
	w.write(worldWorkers[f.worker], r)
	return r
}

// seal gives the journals what makes them hard to change: each record names the one before, and checkpoints are signed. It is
// written by the words of the proto, and not with the code that it tests.
func (w *world) seal() {
	for _, source := range worldSources {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			panic(err)
		}
		var last [sha256.Size]byte
		for _, r := range w.journal[source] {
			if r.Sequence == 1 {
				last = [sha256.Size]byte{}
			}
			r.Previous = fmt.Sprintf("%x", last)
			if c := r.Checkpoint; c != nil {
				c.Digest, c.PublicKey = r.Previous, fmt.Sprintf("%x", key.Public())
				c.Signature = fmt.Sprintf("%x", ed25519.Sign(key, fmt.Appendf(nil,
					"spokegate checkpoint 1\nsource %s\nepoch %d\nsequence %d\ncount %d\ndigest %s\nclosing %t\n", source, c.Epoch, c.Sequence, c.Count, c.Digest, c.Closing)))
			}
			body := usage.AppendJSON(nil, r)
			last = sha256.Sum256(body)
			w.body[r] = body
		}
	}
}

// worldTopics are where the records of a kind are shipped to.
var worldTopics = map[string]string{
	usage.KindAdmitted: "admitted", usage.KindUsage: "usage", usage.KindServed: "served", usage.KindProbe: "served",
	usage.KindEngine: "balance", usage.KindCheckpoint: "balance",
}

// spools are the journals as they are on disk.
func (w *world) spools() (items []Item) {
	for _, s := range worldSources {
		for i, r := range w.journal[s] {
			items = append(items, Item{Record: r, Body: w.body[r], Lane: s, Place: fmt.Sprintf("%s, record %d", s, i)})
		}
	}
	return items
}

// topics are the journals as they are in Kafka: by kind and team, with parts of them twice.
func (w *world) topics() (items []Item) {
	lanes := map[string][]Item{}
	var names []string
	for _, s := range worldSources {
		list := w.journal[s]
		for from := 0; from < len(list); {
			to := min(from+1+w.rand.IntN(500), len(list))
			for times := 1 + w.rand.IntN(5)/4; times > 0; times-- { // a chunk is sent again
				for _, r := range list[from:to] {
					lane := worldTopics[r.Kind] + "/" + r.Team
					if lanes[lane] == nil {
						names = append(names, lane)
					}
					lanes[lane] = append(lanes[lane], Item{Record: r, Body: w.body[r], Lane: lane, Place: lane})
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
