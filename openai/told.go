package openai

import "strings"

// usagePaths are the members of a whole answer that tell its usage, of all operations: see child.
var usagePaths = []string{
	"usage.prompt_tokens", "usage.prompt_tokens_details.cached_tokens", "usage.input_tokens", "usage.input_tokens_details.cached_tokens",
	"usage.cache_read_input_tokens", "usage.cache_creation_input_tokens", "usage.completion_tokens",
	"usage.completion_tokens_details.reasoning_tokens", "usage.output_tokens", "usage.output_tokens_details.reasoning_tokens",
}

// UsagePaths are the members of a whole answer that tell its usage, as names with dots between: what a Told wants to hear.
func UsagePaths() []string { return usagePaths }

// Told makes the report of a whole answer from members that somebody else has read of it. What it is not told is unknown.
type Told struct {
	op Op
	t  tally
}

// NewTold begins the report of an answer to a request of this operation.
func NewTold(op Op) *Told { return &Told{op: op} }

// Number takes a member that is a number, as every reader of JSON holds one.
func (t *Told) Number(path string, n float64) {
	s := t.slot(path)
	switch whole := int64(n); {
	case s >= counters:
	case n < 0 || n > maxCount || float64(whole) != n:
		t.t.doubts |= badUsage
	default:
		t.t.last.set(s, whole)
	}
}

// Other takes a member that is there and no number.
func (t *Told) Other(path string) { t.t.doubts.noteIf(badUsage, t.slot(path) < counters) }

// Unread says that the answer is no JSON.
func (t *Told) Unread() { t.t.doubts |= badJSON }

// Missing says that the answer was marked as one with usage, and that none was found.
func (t *Told) Missing() { t.t.doubts |= badUsage }

// Report is what a Meter of the whole answer would report, if it is no error; complete says that all of it was there.
func (t *Told) Report(complete bool) Report {
	t.t.terminal = complete && t.t.doubts&badJSON == 0
	a := t.t.account(t.op, false)
	return a.report()
}

// slot is what the operation takes a path for.
func (t *Told) slot(path string) slot {
	s := root
	for name := range strings.SplitSeq(path, ".") {
		s = child(t.op, s, []byte(name))
	}
	return s
}
