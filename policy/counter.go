package policy

import (
	"strconv"
	"strings"
)

// ParseCounter takes the name of a limit's counter ([Limit].ID) apart; ok is false for what is no such name.
func ParseCounter(id string) (level, owner, model string, ok bool) {
	level, rest, ok := strings.Cut(id, "/")
	if !ok {
		return "", "", "", false
	}
	owner, rest, ok = counted(rest)
	if !ok || !strings.HasPrefix(rest, "/") {
		return "", "", "", false
	}
	model, rest, ok = counted(rest[1:])
	return level, owner, model, ok && rest == ""
}

// counted takes a text with its length before it off the front.
func counted(s string) (text, rest string, ok bool) {
	digits, rest, ok := strings.Cut(s, ":")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 || n > len(rest) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}
