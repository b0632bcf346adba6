package openai

import (
	"slices"
	"strconv"
	"strings"
)

// Reported is what a worker's shim says, in a header, of a whole answer that it passes on: what a meter of the same bytes would
// report, and how many they are. Of a stream nobody can say so beforehand.
type Reported struct {
	Report
	Bytes int64 // of the body
}

// The words of it, in their order. A count that is not known is left out, never 0.
const (
	wordBytes      = "bytes"
	wordPrompt     = "prompt"
	wordCached     = "cached"
	wordCompletion = "completion"
	wordReasoning  = "reasoning"
	wordFrom       = "from"
	wordFailed     = "failed"
	wordDoubt      = "doubt"
)

// ReportedPrefix begins every report.
const ReportedPrefix = wordBytes + "="

// mostReported is the longest text that is looked at, in bytes.
const mostReported = 512

// AppendText writes it as words: "bytes=812 prompt=300 completion=20 from=engine".
func (r Reported) AppendText(b []byte) []byte {
	b = strconv.AppendInt(append(b, ReportedPrefix...), r.Bytes, 10)
	count := func(word string, n *int64) {
		if n != nil {
			b = strconv.AppendInt(append(append(append(b, ' '), word...), '='), *n, 10)
		}
	}
	count(wordPrompt, r.Usage.Prompt)
	count(wordCached, r.Usage.Cached)
	count(wordCompletion, r.Usage.Completion)
	count(wordReasoning, r.Usage.Reasoning)
	b = append(append(b, " "+wordFrom+"="...), r.CountedFrom...)
	if r.Failed {
		b = append(b, " "+wordFailed...)
	}
	for _, doubt := range r.Anomalies {
		b = append(append(b, " "+wordDoubt+"="...), doubt...)
	}
	return b
}

// ParseReported reads what AppendText has written, and nothing else: what is not understood is no report. The answer that it is
// about is whole: Terminal is set.
func ParseReported(text string) (r Reported, ok bool) {
	if len(text) > mostReported {
		return Reported{}, false
	}
	r.Terminal = true
	for word := range strings.SplitSeq(text, " ") {
		if !r.take(strings.Cut(word, "=")) {
			return Reported{}, false
		}
	}
	return r, string(r.AppendText(nil)) == text // in order, and each once
}

func (r *Reported) take(word, value string, has bool) (ok bool) {
	switch word {
	case wordBytes:
		r.Bytes, ok = number(value)
		return ok
	case wordPrompt:
		return countOf(&r.Usage.Prompt, value)
	case wordCached:
		return countOf(&r.Usage.Cached, value)
	case wordCompletion:
		return countOf(&r.Usage.Completion, value)
	case wordReasoning:
		return countOf(&r.Usage.Reasoning, value)
	case wordFrom:
		r.CountedFrom = value
		return value == "engine" || value == "none"
	case wordFailed:
		r.Failed = true
		return !has
	case wordDoubt:
		r.Anomalies = append(r.Anomalies, value)
		return slices.Contains(doubts, value)
	}
	return false
}

func countOf(to **int64, value string) bool {
	n, ok := number(value)
	*to = &n
	return ok
}

func number(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0
}
