package extauthz

import (
	"fmt"
	"strings"

	"github.com/spokegate/spokegate/router"
)

// mostExplained bounds the header that explains a choice, in bytes: clients and proxies take no headers of any size.
const mostExplained = 4096

// asksWhy says that the client wants the choice of a worker explained.
func (q question) asksWhy() bool { return q.explain != "" && q.explain != "0" }

// explanation is what Choice.Explain says, fit for a header. It has no word of the prompt.
func explanation(c router.Choice) string { return oneLine(c.Explain()) }

// oneLine makes a line of several: what they begin with, the worker chosen, and of the others the cheapest.
func oneLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(plain.Replace(text), "\n"), "\n")
	keep, size, left := make([]bool, len(lines)), len(" | 0000000 more are left out"), len(lines)
	for _, others := range []bool{false, true} {
		for i, l := range lines {
			other := strings.Contains(l, ": overlap ") && !strings.HasSuffix(l, "(chosen)")
			if other == others && size+len(l)+3 <= mostExplained {
				keep[i] = true
				size += len(l) + 3
				left--
			}
		}
	}
	var b strings.Builder
	for i, l := range lines {
		if keep[i] && b.Len() > 0 {
			b.WriteString(" | ")
		}
		if keep[i] {
			b.WriteString(l)
		}
	}
	if left > 0 {
		fmt.Fprintf(&b, " | %d more are left out", left)
	}
	return strings.Map(visible, b.String())
}

// plain writes signs that headers do not carry everywhere.
var plain = strings.NewReplacer("×", "*", "−", "-")

func visible(r rune) rune {
	if r < ' ' || r > '~' {
		return '?'
	}
	return r
}
