package openai

// Usage counts tokens; nil is unknown. Prompt includes Cached, Completion includes Reasoning.
type Usage struct{ Prompt, Cached, Completion, Reasoning *int64 }

// Report is what a response said about itself.
type Report struct {
	Usage       Usage
	Events      int64    // events of a stream that carried generated content
	Terminal    bool     // [DONE], message_stop, response.completed, .incomplete or .failed; of JSON: the whole value
	Failed      bool     // an error event or an error object, also when UpstreamCut
	UpstreamCut bool     // an error event with CodeUpstreamCut
	CountedFrom string   // engine: reported by it; events: Completion was counted from what passed; none
	Anomalies   []string // facts to doubt: some of those below
}

// What there can be to doubt.
const (
	badUsage       = "bad_usage"
	badJSON        = "bad_json"
	cachedAbove    = "cached_above_prompt"
	reasoningAbove = "reasoning_above_completion"
)

// maxChoices bounds the counters kept for choices that report by themselves.
const maxChoices = 1024

// tally adds up what the events of one response say.
type tally struct {
	last      findings // last value of each count; the completion count is the total
	perChoice []int64  // running completion counts of a stream's choices: engines report each by itself until the end
	settled   bool     // the completion count is the engine's last word: no content came after it
	events    int64
	terminal  bool
	failed    bool
	cut       bool
	badUsage  bool
	badJSON   bool
}

// add takes what one event says.
func (t *tally) add(f *findings) {
	t.terminal = t.terminal || f.terminal
	t.failed = t.failed || f.failed
	t.cut = t.cut || f.cut
	t.badUsage = t.badUsage || f.bad
	if f.content {
		t.events++
		t.settled = false
	}
	if n, ok := f.get(completionTokens); ok {
		t.settled = !f.running && f.choices == 0
		t.total(f, n)
	}
	t.last.merge(f)
}

// total turns the count of one choice into that of all.
func (t *tally) total(f *findings, n int64) {
	if f.choices != 1 {
		return
	}
	if f.index >= maxChoices {
		f.drop(completionTokens)
		return
	}
	for int64(len(t.perChoice)) <= f.index {
		t.perChoice = append(t.perChoice, 0)
	}
	t.perChoice[f.index] = n
	var sum int64
	for _, n := range t.perChoice {
		sum += n
	}
	f.set(completionTokens, sum)
}

// onlyRaise drops a completion count that is below the one known: a comment that stands alone may speak of one choice.
func (t *tally) onlyRaise(f *findings) {
	n, ok := f.get(completionTokens)
	if before, known := t.last.get(completionTokens); ok && known && n < before {
		f.drop(completionTokens)
	}
}

func (t *tally) report(op Op, stream bool) Report {
	r := Report{Events: t.events, Terminal: t.terminal, Failed: t.failed || t.cut, UpstreamCut: t.cut, CountedFrom: "none"}
	r.Usage = t.usage()
	if r.Usage != (Usage{}) {
		r.CountedFrom = "engine"
	}
	switch {
	case op == Embeddings:
		r.Usage.Completion = new(int64) // by definition: nothing is generated
	case stream && t.uncounted(r.Usage.Completion):
		r.Usage.Completion, r.CountedFrom = new(t.events), "events"
	}
	r.Anomalies = t.anomalies(&r.Usage)
	return r
}

// uncounted says that more events with content passed than the engine's count tells of: it reported none, or the stream was
// cut between two counts. The engine's last word stands whatever passed.
func (t *tally) uncounted(completion *int64) bool {
	switch {
	case t.events == 0:
		return false
	case completion == nil:
		return true
	default:
		return !t.settled && !t.terminal && *completion < t.events
	}
}

// usage returns what the engine reported.
func (t *tally) usage() Usage {
	u := Usage{
		Prompt:     t.count(promptTokens),
		Cached:     t.count(cachedTokens),
		Completion: t.count(completionTokens),
		Reasoning:  t.count(reasoningTokens),
	}
	if u.Cached == nil {
		u.Cached = t.count(cacheRead)
	}
	if u.Prompt == nil && t.last.has[inputTokens] {
		u.Prompt = new(t.last.counts[inputTokens] + t.last.counts[cacheRead] + t.last.counts[cacheCreation])
	}
	return u
}

func (t *tally) count(s slot) *int64 {
	n, ok := t.last.get(s)
	if !ok {
		return nil
	}
	return &n
}

// anomalies names what is to be doubted, and cuts a part down to its whole.
func (t *tally) anomalies(u *Usage) []string {
	var list []string
	if t.badUsage {
		list = append(list, badUsage)
	}
	if t.badJSON {
		list = append(list, badJSON)
	}
	if above(u.Cached, u.Prompt) {
		list = append(list, cachedAbove)
	}
	if above(u.Reasoning, u.Completion) {
		list = append(list, reasoningAbove)
	}
	return list
}

func above(part, whole *int64) bool {
	if part == nil || whole == nil || *part <= *whole {
		return false
	}
	*part = *whole
	return true
}
