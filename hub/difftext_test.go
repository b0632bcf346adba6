package hub

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// diffText is a difference as scenarios show it: a line for each member that changed.
func diffText(d Diff) string {
	var b strings.Builder
	for _, c := range d.Changes {
		what := strings.TrimSpace(string(c.Kind) + " " + c.Name)
		switch {
		case c.Before == nil:
			fmt.Fprintf(&b, "+ %s\n", what)
		case c.After == nil:
			fmt.Fprintf(&b, "- %s\n", what)
		default:
			fmt.Fprintf(&b, "~ %s\n", what)
		}
		memberLines(&b, c)
	}
	return b.String()
}

func memberLines(b *strings.Builder, c Difference) {
	was, _ := readBody(c.Before)
	is, _ := readBody(c.After)
	names := map[string]bool{}
	for name := range was {
		names[name] = true
	}
	for name := range is {
		names[name] = true
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		if bytes.Equal(was[name], is[name]) || name == nameMember(c.Kind) {
			continue
		}
		if v, has := was[name]; has {
			fmt.Fprintf(b, "  - %s: %s\n", name, v)
		}
		if v, has := is[name]; has {
			fmt.Fprintf(b, "  + %s: %s\n", name, v)
		}
	}
}
