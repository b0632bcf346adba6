package text

import (
	"errors"
	"time"

	"github.com/ardanlabs/jinja"
)

// A template comes with a model that somebody has made, and runs in the door: it may neither go on for ever nor call itself
// until the stack is full, which would end the process. So each turn of a loop and each call of a macro is counted, by calls
// that compile puts there, and range is our own. What one that was made to do harm may still do is to double a string a few dozen
// times, or to print a list that is in itself: templates are to be trusted that far, and docs/operating.md says so.
const (
	mostTurns = 2_000_000 // of all loops
	mostCalls = 20_000    // of all macros, and so their depth: some 100 MB of stack
	mostRange = 100_000   // elements of all ranges
	mostTime  = time.Second
)

// Names of the calls, which no template has.
const (
	turnName = "spokegate_turn"
	callName = "spokegate_call"
)

var errBudget = errors.New("the template goes on for too long")

// budget is for one rendering.
type budget struct {
	began                  time.Time
	turns, calls, elements int
}

// add gives the template what it is counted by.
func (b *budget) add(data map[string]jinja.Value) {
	b.began = time.Now()
	data[turnName] = b.counted(&b.turns, mostTurns)
	data[callName] = b.counted(&b.calls, mostCalls)
	data["range"] = jinja.NewCallable("range", b.span)
}

// clockEvery is how many turns pass between two looks at the clock.
const clockEvery = 256

func (b *budget) counted(n *int, most int) jinja.Value {
	return jinja.NewCallable("", func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
		if *n++; *n > most || *n%clockEvery == 0 && time.Since(b.began) > mostTime {
			return jinja.Value{}, errBudget
		}
		return jinja.NewString(""), nil
	})
}

// span is Python's range.
func (b *budget) span(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	var n [3]int64
	for i, a := range args {
		if i >= len(n) || !a.IsInt() {
			return jinja.Value{}, errors.New("range: one to three whole numbers expected")
		}
		n[i] = a.AsInt()
	}
	from, to, by := n[0], n[1], n[2]
	switch len(args) {
	case 0:
		return jinja.Value{}, errors.New("range: one to three whole numbers expected")
	case 1:
		from, to, by = 0, from, 1
	case 2:
		by = 1
	}
	if by == 0 {
		return jinja.Value{}, errors.New("range: a step of 0")
	}
	var items []jinja.Value
	for ; by > 0 && from < to || by < 0 && from > to; from += by {
		if b.elements++; b.elements > mostRange {
			return jinja.Value{}, errBudget
		}
		items = append(items, jinja.NewInt(from))
	}
	return jinja.NewList(items), nil
}
