package openai

// account is what a Report says, in a form that costs nothing to make: the shim makes one after every event.
type account struct {
	prompt, cached, completion, reasoning count
	events                                int64
	from                                  string
	terminal, failed, cut                 bool
	doubts                                doubts
}

// count is a number of tokens that may be unknown; then n is 0.
type count struct {
	n     int64
	known bool
}

// doubts are the anomalies of a report.
type doubts uint8

// What there can be to doubt.
const (
	badUsage doubts = 1 << iota
	badJSON
	cachedAbove
	reasoningAbove
)

// doubtNames are how reports write them, in their order.
var doubtNames = [...]string{"bad_usage", "bad_json", "cached_above_prompt", "reasoning_above_completion"}

// doubtOf is the doubt of a name; 0: there is none.
func doubtOf(name string) doubts {
	for i, known := range doubtNames {
		if known == name {
			return 1 << i
		}
	}
	return 0
}

func (d *doubts) noteIf(which doubts, so bool) {
	if so {
		*d |= which
	}
}

// known says that some count is.
func (a *account) known() bool {
	return a.prompt.known || a.cached.known || a.completion.known || a.reasoning.known
}

// cutParts cuts a part down to its whole, and doubts it.
func (a *account) cutParts() {
	a.doubts.noteIf(cachedAbove, a.cached.cutTo(a.prompt))
	a.doubts.noteIf(reasoningAbove, a.reasoning.cutTo(a.completion))
}

func (part *count) cutTo(whole count) bool {
	if !part.known || !whole.known || part.n <= whole.n {
		return false
	}
	part.n = whole.n
	return true
}

// report is the account as others get it.
func (a *account) report() Report {
	r := Report{Events: a.events, Terminal: a.terminal, Failed: a.failed, UpstreamCut: a.cut, CountedFrom: a.from}
	if a.known() {
		room := &[4]int64{a.prompt.n, a.cached.n, a.completion.n, a.reasoning.n} // one allocation for all
		r.Usage = Usage{a.prompt.in(&room[0]), a.cached.in(&room[1]), a.completion.in(&room[2]), a.reasoning.in(&room[3])}
	}
	for i, name := range doubtNames {
		if a.doubts&(1<<i) != 0 {
			r.Anomalies = append(r.Anomalies, name)
		}
	}
	return r
}

// in is the place of a count that is known, else nil.
func (c count) in(place *int64) *int64 {
	if !c.known {
		return nil
	}
	return place
}

func countOf(n *int64) count {
	if n == nil {
		return count{}
	}
	return count{*n, true}
}

// accountOf is the account that makes such a report.
func accountOf(r *Report) account {
	a := account{
		prompt: countOf(r.Usage.Prompt), cached: countOf(r.Usage.Cached),
		completion: countOf(r.Usage.Completion), reasoning: countOf(r.Usage.Reasoning),
		events: r.Events, from: r.CountedFrom, terminal: r.Terminal, failed: r.Failed, cut: r.UpstreamCut,
	}
	for _, name := range r.Anomalies {
		a.doubts |= doubtOf(name)
	}
	return a
}
