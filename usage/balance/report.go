package balance

import (
	"fmt"
	"time"
)

// Kind is what is wrong, or worth a note.
type Kind string

// Problems: with one of them the evidence does not balance.
const (
	MissingUsage    Kind = "missing_usage"    // admitted, and nobody told how it ended
	MissingAdmitted Kind = "missing_admitted" // used or served, and never admitted
	MissingServed   Kind = "missing_served"   // complete, and no worker told
	Uncounted       Kind = "uncounted"        // the door does not know the tokens, the worker does
	Tokens          Kind = "tokens"           // the door counted more than the worker, or less though nothing was cut
	Cost            Kind = "cost"             // not what price and tokens make
	Disagreement    Kind = "disagreement"     // records of one admission name different callers, models or times
	Contradiction   Kind = "contradiction"    // the door says that nobody served it, a worker that it did
	Conflict        Kind = "conflict"         // one id, two contents
	Clash           Kind = "clash"            // one number, two records
	Gap             Kind = "gap"              // numbers are missing
	OutOfOrder      Kind = "out_of_order"     // a number stands behind a greater one
	Damaged         Kind = "damaged"          // a line or message is no record
	Altered         Kind = "altered"          // the chain of digests or a checkpoint says otherwise
	Untrusted       Kind = "untrusted"        // not signed, or by a key that is not pinned
	Engine          Kind = "engine"           // the engine's own counters say otherwise
)

// Notes: they balance, and somebody may want to know.
const (
	Doubled        Kind = "doubled"         // the same record again: dropped by its id
	Superseded     Kind = "superseded"      // a record that another one wins over
	RepairedNow    Kind = "repaired_now"    // written by this run
	RepairedBefore Kind = "repaired_before" // it counts a repair
	LostServed     Kind = "lost_served"     // the worker broke off about then, and what it had not written is gone
	WrittenOff     Kind = "written_off"     // it would be a problem, had its source not been written off
)

// Kinds are all of them, problems first.
func Kinds() []Kind {
	return []Kind{MissingUsage, MissingAdmitted, MissingServed, Uncounted, Tokens, Cost, Disagreement, Contradiction, Conflict, Clash, Gap, OutOfOrder,
		Damaged, Altered, Untrusted, Engine, Doubled, Superseded, RepairedNow, RepairedBefore, LostServed, WrittenOff}
}

// Fails tells whether it is a problem.
func (k Kind) Fails() bool {
	switch k {
	case Doubled, Superseded, RepairedNow, RepairedBefore, LostServed, WrittenOff:
		return false
	}
	return true
}

// Problem is one of them, by name.
type Problem struct {
	Kind      Kind       `json:"kind"`
	Hour      *time.Time `json:"hour,omitempty"` // of admission
	Source    string     `json:"source,omitempty"`
	Epoch     uint64     `json:"epoch,omitempty"`
	Sequence  uint64     `json:"sequence,omitempty"`
	Admission string     `json:"admission,omitempty"`
	ID        string     `json:"id,omitempty"`     // of the record
	Engine    string     `json:"engine,omitempty"` // the run of an engine that it is about
	Team      string     `json:"team,omitempty"`
	What      string     `json:"what"`
}

func (p Problem) String() string {
	s := string(p.Kind)
	if p.Source != "" {
		s += fmt.Sprintf(" %s/%d/%d", p.Source, p.Epoch, p.Sequence)
	}
	if p.Admission != "" {
		s += " admission " + p.Admission
	}
	return s + ": " + p.What
}

// Row is what one source journaled of one team's admissions of one hour.
type Row struct {
	Hour   time.Time `json:"hour"` // of admission, UTC
	Source string    `json:"source"`
	Team   string    `json:"team"`

	Admitted uint64 `json:"admitted"`
	Usage    uint64 `json:"usage"`
	Served   uint64 `json:"served"` // one for each attempt that reached an engine
	Open     uint64 `json:"open"`   // admissions that cannot be judged yet

	PromptTokens     int64 `json:"prompt_tokens"` // of its usage and served records, as far as known
	CompletionTokens int64 `json:"completion_tokens"`
	// Cut are requests that broke off, of which the door saw less than the worker made, and how many tokens less.
	Cut       uint64 `json:"cut"`
	CutTokens int64  `json:"cut_tokens"`

	MissingUsage     uint64 `json:"missing_usage"`
	MissingAdmitted  uint64 `json:"missing_admitted"`
	MissingServed    uint64 `json:"missing_served"`
	TokenDifferences uint64 `json:"token_differences"`
	Conflicts        uint64 `json:"conflicts"` // also disagreements and contradictions
	Doubled          uint64 `json:"doubled"`   // dropped by id
	Repaired         uint64 `json:"repaired"`
	Lost             uint64 `json:"lost"` // written off, or lost with a worker that broke off
}

// add leaves out the tokens of what was served: they are those of usage once more.
func (r *Row) add(o Row) {
	if o.Usage == 0 {
		o.PromptTokens, o.CompletionTokens = 0, 0
	}
	r.addAll(o)
}

func (r *Row) addAll(o Row) {
	r.Admitted, r.Usage, r.Served, r.Open = r.Admitted+o.Admitted, r.Usage+o.Usage, r.Served+o.Served, r.Open+o.Open
	r.MissingUsage, r.MissingAdmitted, r.MissingServed = r.MissingUsage+o.MissingUsage, r.MissingAdmitted+o.MissingAdmitted, r.MissingServed+o.MissingServed
	r.PromptTokens, r.CompletionTokens = r.PromptTokens+o.PromptTokens, r.CompletionTokens+o.CompletionTokens
	r.Cut, r.CutTokens = r.Cut+o.Cut, r.CutTokens+o.CutTokens
	r.TokenDifferences, r.Conflicts = r.TokenDifferences+o.TokenDifferences, r.Conflicts+o.Conflicts
	r.Doubled, r.Repaired, r.Lost = r.Doubled+o.Doubled, r.Repaired+o.Repaired, r.Lost+o.Lost
}

// SourceReport is one epoch of a source.
type SourceReport struct {
	Source     string    `json:"source"`
	Epoch      uint64    `json:"epoch"`
	Records    uint64    `json:"records"`
	First      uint64    `json:"first"` // sequence numbers; 0: none
	Last       uint64    `json:"last"`
	Judged     uint64    `json:"judged"` // the watermark: up to here no number may be missing
	Missing    uint64    `json:"missing"`
	Told       time.Time `json:"told"` // when it last told something
	WrittenOff bool      `json:"written_off"`
}

// Report is the proof, or what stands against it.
type Report struct {
	Balanced bool            `json:"balanced"`
	From     *time.Time      `json:"from,omitempty"`
	To       *time.Time      `json:"to,omitempty"`
	At       time.Time       `json:"at"`
	Records  uint64          `json:"records"` // read, doubles included
	Rows     []Row           `json:"rows"`
	Total    Row             `json:"total"` // of all rows; its tokens are those of usage records
	Sources  []SourceReport  `json:"sources"`
	Engines  []EngineRow     `json:"engines"`
	Counts   map[Kind]uint64 `json:"counts"` // of problems and notes
	Problems []Problem       `json:"problems"`
	Notes    []Problem       `json:"notes"`

	bySource map[string]map[Kind]uint64 // Counts of each source
}

// Failing is how many problems there are.
func (r *Report) Failing() uint64 { return failing(r.Counts) }

func failing(counts map[Kind]uint64) (n uint64) {
	for kind, count := range counts {
		if kind.Fails() {
			n += count
		}
	}
	return n
}
