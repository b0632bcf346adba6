package usage

import "strings"

// PlainCell marks as text, in a cell of CSV, what a spreadsheet would take for a formula: some of these are a client's own
// words.
func PlainCell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
