package text

import (
	"fmt"
	"strings"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// Real models have up to some ten thousand added tokens, of up to some dozen bytes. A worker that announced much more would
// make each prompt dear.
const (
	mostAdded    = 1 << 17
	longestAdded = 256
)

// added finds added tokens in text. They lie in a tree by their bytes, so that how many begin alike costs a prompt nothing,
// however often their beginning is in it.
type added struct {
	starts [256]bool // first bytes
	rare   int       // the only first byte; -1: there are several, or none
	steps  map[step]int32
	ends   [][]*workerv1.AddedToken // by place in the tree, 0 is the root: what ends there, in the order told
}

type step struct {
	from int32
	by   byte
}

func newAdded(tokens []*workerv1.AddedToken) (added, error) {
	a := added{rare: -1, steps: map[step]int32{}, ends: make([][]*workerv1.AddedToken, 1)}
	if len(tokens) > mostAdded {
		return a, fmt.Errorf("the tokenizer has %d added tokens: at most %d are taken", len(tokens), mostAdded)
	}
	firsts := 0
	for _, t := range tokens {
		switch {
		case t.Content == "":
			continue
		case len(t.Content) > longestAdded:
			return a, fmt.Errorf("an added token has %d bytes: at most %d are taken", len(t.Content), longestAdded)
		}
		if c := t.Content[0]; !a.starts[c] {
			a.starts[c] = true
			a.rare = int(c)
			firsts++
		}
		a.put(t)
	}
	if firsts != 1 {
		a.rare = -1
	}
	return a, nil
}

func (a *added) put(t *workerv1.AddedToken) {
	var at int32
	for i := range len(t.Content) {
		s := step{at, t.Content[i]}
		next, is := a.steps[s]
		if !is {
			next = int32(len(a.ends))
			a.steps[s] = next
			a.ends = append(a.ends, nil)
		}
		at = next
	}
	a.ends[at] = append(a.ends[at], t)
}

// next finds the first added token in a text: the longest that stands there.
func (a *added) next(text string) (at int, token *workerv1.AddedToken) {
	for i := 0; i < len(text); i++ {
		if a.rare >= 0 {
			skip := strings.IndexByte(text[i:], byte(a.rare))
			if skip < 0 {
				break
			}
			i += skip
		}
		if !a.starts[text[i]] {
			continue
		}
		if token := a.at(text, i); token != nil {
			return i, token
		}
	}
	return len(text), nil
}

// at is the longest token that stands at text[i:]; nil: none.
func (a *added) at(text string, i int) (longest *workerv1.AddedToken) {
	var at int32
	for end := i; end < len(text); {
		next, is := a.steps[step{at, text[end]}]
		if !is {
			break
		}
		at = next
		end++
		for _, t := range a.ends[at] {
			if !t.SingleWord || isWord(text, i, end) {
				longest = t
				break
			}
		}
	}
	return longest
}
