package worker

import (
	"regexp"
	"strings"

	"github.com/spokegate/spokegate/enginemetrics"
)

// dialect is what the shim must know of a kind of engine to understand what it says. The zero value understands nothing.
type dialect struct {
	// metrics is the path of its Prometheus text; empty: it has none.
	metrics string
	// anyKind: nobody knows, and the names of its metrics may tell.
	anyKind bool
	// families in it.
	families enginemetrics.Families
	// progress tells how far a start is: the first group of a pattern, or all that it matched.
	progress []*regexp.Regexp
	// memory, fatal are lines that tell why it died.
	memory, fatal []*regexp.Regexp
	// transport tells by which means KV blocks travel; a first group that is not fast is a fallback.
	slow []*regexp.Regexp
}

// Lines that every engine in Python says.
var (
	outOfMemory = regexp.MustCompile(`(?i)(?:cuda|hip|xpu) out of memory|torch\.(?:cuda\.)?OutOfMemoryError|\bMemoryError\b|no available memory for the cache blocks|std::bad_alloc|cannot allocate memory`)
	rootCause   = regexp.MustCompile(`\b(?:[A-Za-z_.]*(?:Error|Exception)): \S|CUDA error|NCCL error|Xid`)
	// calm is a line of a level that nothing dies of: vLLM warns at each start of errors that it might have.
	calm = regexp.MustCompile(`\b(?:DEBUG|INFO|WARNING) \d\d-\d\d `)
)

func (d dialect) progressOf(line string) string {
	for _, p := range d.progress {
		if m := p.FindStringSubmatch(line); m != nil {
			return strings.ToLower(strings.Join(strings.Fields(strings.Join(m[min(1, len(m)-1):], " ")), " "))
		}
	}
	return ""
}

func (d dialect) degradedOf(line string) string {
	for _, p := range d.slow {
		if m := p.FindStringSubmatch(line); m != nil {
			return kvTransfer + ": " + strings.ToLower(m[len(m)-1])
		}
	}
	return ""
}

// causeOf is what a line tells of an end to come. The line is cut to what people read.
func (d dialect) causeOf(line string) cause {
	for _, p := range d.memory {
		if at := p.FindStringIndex(line); at != nil {
			return cause{causeMemory, clip(line[at[0]:])}
		}
	}
	if calm.MatchString(line) {
		return cause{}
	}
	for _, p := range d.fatal {
		if at := p.FindStringIndex(line); at != nil {
			return cause{causeCrash, clip(line[at[0]:])}
		}
	}
	return cause{}
}

// clip keeps the start of a line. Engines put whole prompts into some.
func clip(line string) string {
	const most = 200
	if len(line) <= most {
		return line
	}
	return strings.ToValidUTF8(line[:most], "") + "…"
}
