package openai

// Usage counts tokens; nil is unknown. Prompt includes Cached, Completion includes Reasoning.
type Usage struct{ Prompt, Cached, Completion, Reasoning *int64 }

// Report is what a response said about itself.
type Report struct {
	Usage       Usage
	Events      int64    // events of a stream that carried generated content; of a note, only if Completion was counted from them
	Terminal    bool     // [DONE], message_stop, response.completed, .incomplete or .failed; of JSON: the whole value
	Failed      bool     // an error event or an error object, also when UpstreamCut
	UpstreamCut bool     // an error event with CodeUpstreamCut
	CountedFrom string   // engine: reported by it; events: Completion was counted from what passed; none
	Anomalies   []string // facts to doubt: some of doubtNames
}

// Where a report's counts come from.
const (
	countedEngine = "engine"
	countedEvents = "events"
	countedNone   = "none"
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
	doubts    doubts
	noted     doubts // of the last note
}

// add takes what one event says.
func (t *tally) add(f *findings) {
	t.terminal = t.terminal || f.terminal
	t.failed = t.failed || f.failed
	t.cut = t.cut || f.cut
	t.doubts.noteIf(badUsage, f.bad)
	if f.content {
		t.events++
		t.settled = false
	}
	if n, ok := f.get(completionTokens); ok {
		t.settled = f.choices == 0
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
	if sum > maxCount {
		f.drop(completionTokens)
		t.doubts |= badUsage
		return
	}
	f.set(completionTokens, sum)
}

// onlyRaise takes a note that an event was to follow. It may be of a shim that says less; so the completion does not fall.
func (t *tally) onlyRaise(note *findings) {
	n, ok := note.get(completionTokens)
	if before, known := t.last.get(completionTokens); ok && known && n < before {
		note.drop(completionTokens)
	}
	t.add(note)
	t.noted = note.doubts
}

// replace takes a note that stands alone, or behind an event: it says all of what has been used before it. Without a completion
// count, the events are more than the engine has counted.
func (t *tally) replace(note *findings) {
	for _, s := range [...]slot{promptTokens, cachedTokens, completionTokens, reasoningTokens} {
		t.last.counts[s], t.last.has[s] = note.counts[s], note.has[s]
	}
	t.settled, t.noted = note.has[completionTokens], note.doubts
	t.doubts.noteIf(badUsage, note.bad)
}

// account is what the response has said so far.
func (t *tally) account(op Op, stream bool) account {
	a := account{events: t.events, terminal: t.terminal, failed: t.failed || t.cut, cut: t.cut, from: countedNone, doubts: t.doubts | t.noted}
	t.usage(&a)
	if a.known() {
		a.from = countedEngine
	}
	switch {
	case op == Embeddings:
		a.completion = count{0, true} // by definition: nothing is generated
	case stream && t.uncounted(a.completion):
		a.completion, a.from = count{t.events, true}, countedEvents
	}
	a.cutParts()
	return a
}

// uncounted says that more events with content passed than the engine's count tells of: it reported none, or the stream was
// cut between two counts. The engine's last word stands whatever passed.
func (t *tally) uncounted(completion count) bool {
	switch {
	case t.events == 0:
		return false
	case !completion.known:
		return true
	default:
		return !t.settled && !t.terminal && completion.n < t.events
	}
}

// usage tells what the engine reported.
func (t *tally) usage(a *account) {
	a.prompt, a.cached = t.count(promptTokens), t.count(cachedTokens)
	a.completion, a.reasoning = t.count(completionTokens), t.count(reasoningTokens)
	if !a.cached.known {
		a.cached = t.count(cacheRead)
	}
	if !a.prompt.known && t.last.has[inputTokens] {
		n := t.last.counts[inputTokens] + t.last.counts[cacheRead] + t.last.counts[cacheCreation]
		if a.prompt = (count{n, true}); n > maxCount {
			a.prompt, a.doubts = count{}, a.doubts|badUsage
		}
	}
}

func (t *tally) count(s slot) count {
	n, ok := t.last.get(s)
	return count{n, ok}
}
