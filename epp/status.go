package epp

import (
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
)

// Endpoint is how an endpoint's picker stands.
type Endpoint struct {
	Name     string            `json:"name"`
	Settings Settings          `json:"settings"`
	Picks    map[string]uint64 `json:"picks"` // by result
	// Blocks are those that its workers have announced, and Held what they hold of them together: what two hold counts twice.
	Blocks  int      `json:"blocks"`
	Held    int      `json:"held"`
	Workers []Worker `json:"workers"` // by address and rank; also those that cannot be picked
}

// Settings are those by which it chooses now: see policy.Routing.
type Settings struct {
	OverlapWeight  float64 `json:"overlap_weight"`
	MissWeight     float64 `json:"miss_weight"`
	ActiveWeight   float64 `json:"active_weight"`
	AffinityWeight float64 `json:"affinity_weight"`
	CreditDecay    float64 `json:"credit_decay"`
	Temperature    float64 `json:"temperature"`
	BlockBytes     int     `json:"block_bytes"`
	Busy           Busy    `json:"busy"`
}

// Busy are the thresholds; 0: there is none.
type Busy struct {
	DecodeShare   float64 `json:"decode_share"`
	PrefillTokens int     `json:"prefill_tokens"`
	Queue         int     `json:"queue"`
}

func settings(r policy.Routing) Settings {
	return Settings{r.OverlapWeight, r.MissWeight, r.ActiveWeight, r.AffinityWeight, r.CreditDecay, r.Temperature, r.BlockBytes, Busy(r.Busy)}
}

// Worker is how one worker of an endpoint stands, or one data-parallel rank of it.
type Worker struct {
	Name     string `json:"name"`
	Address  string `json:"address"`
	Rank     *int   `json:"rank,omitempty"` // absent: it has but one
	Role     string `json:"role,omitempty"` // prefill, decode; absent: all by itself
	State    string `json:"state"`
	Pickable bool   `json:"pickable"` // if not, nothing of its load is known
	// Index is how much is known of what it holds, since when, and why it is not indexed: in a word, and for people.
	Index  string     `json:"index"`
	Cause  string     `json:"cause,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	Held   int        `json:"held"` // blocks, by its own announcement, of all its ranks
	// What is booked: see router.WorkerLoad.
	Prefill     int    `json:"prefill_blocks"`
	Decode      int    `json:"decode_blocks"`
	Requests    int    `json:"requests"`
	Waiting     int    `json:"waiting"`
	Others      int    `json:"others_requests"`
	OtherBlocks int    `json:"others_blocks"`
	Busy        string `json:"busy,omitempty"` // the threshold that it is beyond
	// Parted are those of its last 50 answers whose cached tokens were others than announced, and Last is the last one compared.
	Parted int     `json:"parted"`
	Last   *Check  `json:"last_check,omitempty"`
	Said   *Report `json:"engine,omitempty"` // what it says itself; absent: nothing
}

// Check is one answer: tokens of its prompt in a cache, by what the worker with the most of them had announced, by what the chosen
// one had, and by its engine's report, if that says.
type Check struct {
	Best     int64     `json:"best"`
	Chosen   int64     `json:"chosen"`
	Reported *int64    `json:"reported,omitempty"`
	At       time.Time `json:"at"`
}

// Report is what an engine says of itself.
type Report struct {
	Running   uint32    `json:"running"`
	Waiting   uint32    `json:"waiting"`
	CacheUsed float64   `json:"cache_used"`
	At        time.Time `json:"at"`
}

// Status is how the endpoints of the policy stand, by name.
func (p *Picker) Status() []Endpoint {
	all := []Endpoint{}
	snap := p.Policy.Load()
	if snap == nil {
		return all
	}
	known := p.known()
	for _, e := range snap.Endpoints() {
		r := p.router(e.Name)
		if r == nil {
			continue // in a moment
		}
		st := Endpoint{Name: e.Name, Settings: settings(e.Routing), Picks: p.metrics.counted(e.Name), Workers: []Worker{}}
		st.Blocks, st.Held = r.Size()
		loads := map[string][]router.WorkerLoad{}
		for _, l := range r.Load() {
			loads[l.Addr] = append(loads[l.Addr], l)
		}
		for _, w := range p.Fleet.View().Workers {
			if w.Endpoint == e.Name {
				st.Workers = append(st.Workers, known.of(w, loads[w.Addr])...)
			}
		}
		all = append(all, st)
	}
	return all
}

// known is what there is to say of workers, by address.
type known struct {
	indexes  map[string]Index
	findings map[string]finding
}

func (p *Picker) known() known {
	k := known{map[string]Index{}, map[string]finding{}}
	for _, i := range p.Indexes() {
		k.indexes[i.Addr] = i
	}
	for _, f := range p.checks.list() {
		k.findings[f.worker] = f
	}
	return k
}

// of a worker, one for each of its ranks that has a load.
func (k known) of(w fleet.Worker, loads []router.WorkerLoad) []Worker {
	st := Worker{Name: w.Name, Address: w.Addr, Role: w.Role, State: w.State.String(), Index: Predictive, Cause: causeNone}
	if i, told := k.indexes[w.Addr]; told && i.Endpoint == w.Endpoint {
		st.Index, st.Cause, st.Reason, st.Since = i.State, i.Cause, i.Reason, &i.Since
	} else if w.BlocksAddr != "" {
		st.Cause = causeStarting
	}
	if f, is := k.findings[w.Addr]; is {
		st.Held, st.Parted = f.heard, f.parted
		if v := f.last; !v.at.IsZero() {
			st.Last = &Check{v.best, v.chosen, v.reported, v.at}
		}
	}
	said := w.Status()
	if said.Load != nil {
		st.Said = newReport(said.At, *said.Load)
	}
	if len(loads) == 0 {
		return []Worker{st}
	}
	var all []Worker
	for _, l := range loads {
		one := st
		one.Pickable = true
		if len(loads) > 1 {
			one.Rank = &l.Rank
			one.Said = nil
			if l.Rank < len(said.Ranks) {
				one.Said = newReport(said.At, said.Ranks[l.Rank])
			}
		}
		one.Prefill, one.Decode, one.Requests, one.Waiting = l.PrefillBlocks, l.DecodeBlocks, l.Requests, l.Waiting
		one.Others, one.OtherBlocks, one.Busy = l.Others, l.OtherBlocks, l.Busy
		all = append(all, one)
	}
	return all
}

func newReport(at time.Time, l fleet.Load) *Report {
	return &Report{l.Running, l.Waiting, float64(l.CacheUsedPermille) / 1000, at}
}

// results of picks, as the metric names them.
var results = []string{"picked", "no_worker", "none_eligible", "busy"}

// counted reads back how many picks of an endpoint had which result.
func (m *metrics) counted(endpoint string) map[string]uint64 {
	counts := map[string]uint64{}
	for _, result := range results {
		var v dto.Metric
		if err := m.picks.WithLabelValues(endpoint, result).Write(&v); err == nil {
			counts[result] = uint64(v.GetCounter().GetValue())
		}
	}
	return counts
}
