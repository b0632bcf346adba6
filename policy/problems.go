package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spokegate/spokegate/identity"
)

// Problem is one thing that is wrong with a policy.
type Problem struct {
	File         string // as given to [Parse]; "" for a set that did not come from a file
	Line, Column int    // from 1; 0 without a file
	Path         string // where in the policy: teams[research].limits[0].burst
	Text         string // what is wrong, and what is expected

	at      spot
	lacking bool // something is not there, so its place is that of what should hold it
}

// Error is the problem in one line: FILE:LINE:COL: path: what is wrong and what is expected. It never repeats a key.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	return identity.Mask(b.String() + p.Text)
}

// Problems are all that is wrong with one policy, in the order of the file. As an error it is never empty.
type Problems []Problem

// maxLines bounds the text of Problems: it travels in a NACK and into logs. Whoever wants all ranges over the slice.
const maxLines = 20

// Error gives one line a problem, the first 20.
func (ps Problems) Error() string {
	lines := make([]string, 0, maxLines+1)
	for i, p := range ps {
		if i == maxLines {
			lines = append(lines, fmt.Sprintf("and %d more", len(ps)-i))
			break
		}
		lines = append(lines, p.Error())
	}
	return strings.Join(lines, "\n")
}

// err is nil without problems: a nil slice in an error would not be nil.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// sorted orders by place and keeps the first problem of a place in a file: what follows from it is noise.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.CompactFunc(ps, func(a, b Problem) bool {
		return a.Line > 0 && a.Line == b.Line && a.Column == b.Column && !a.lacking && !b.lacking
	})
}

// maxQuoted bounds how much of a policy's own text a message repeats, in characters.
const maxQuoted = 64

// quote repeats a name of the policy in a message: short, and without characters that would change a terminal.
func quote(s string) string {
	out := make([]rune, 0, min(len(s), maxQuoted))
	for _, r := range s {
		if len(out) == maxQuoted {
			return fmt.Sprintf("%q…", string(out))
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		out = append(out, r)
	}
	return fmt.Sprintf("%q", string(out))
}
