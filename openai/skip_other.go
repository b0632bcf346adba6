//go:build !amd64

package openai

// skipPlain leaves all to shortStop.
func skipPlain(_ []byte, i int) (at int, high bool) { return i, false }
