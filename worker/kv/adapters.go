package kv

import (
	"maps"
	"slices"
	"unicode/utf8"
)

// At most so many adapters are told of, and of names of so many bytes.
const (
	mostAdapters   = 4096
	longestAdapter = 256
)

// adapters are the names of those that the engine has: by its list, and by its events, which know of one that was loaded a
// moment ago.
type adapters struct {
	listed, seen map[string]bool
}

func (a *adapters) all() []string {
	all := maps.Clone(a.seen)
	if all == nil {
		all = map[string]bool{}
	}
	maps.Copy(all, a.listed)
	names := slices.Sorted(maps.Keys(all))
	return names[:min(len(names), mostAdapters)]
}

// list takes the engine's list; changed: it is another than that of before.
func (a *adapters) list(names []string) (changed bool) {
	listed := map[string]bool{}
	for _, name := range names {
		if len(name) <= longestAdapter {
			listed[name] = true
		}
	}
	changed = !maps.Equal(a.listed, listed)
	a.listed = listed
	return changed
}

// see takes what names an adapter in an event; changed: it was not known.
func (a *adapters) see(lora []byte) (changed bool) {
	const head = 1 + 4 // see appendKey
	if len(lora) <= head || lora[0] != 'l' || len(lora)-head > longestAdapter {
		return false
	}
	name := lora[head:]
	if !utf8.Valid(name) || a.listed[string(name)] || a.seen[string(name)] || len(a.seen) >= mostAdapters {
		return false
	}
	if a.seen == nil {
		a.seen = map[string]bool{}
	}
	a.seen[string(name)] = true
	return true
}

// SetAdapters takes the engine's own list of its adapters.
func (s *Source) SetAdapters(names []string) {
	a := s.announcer
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.adapters.list(names) {
		a.describe()
	}
}
