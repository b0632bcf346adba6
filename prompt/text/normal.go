package text

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// normaliser does to text what a tokenizer does before it cuts it into tokens, segment by segment between added tokens.
type normaliser struct {
	nfc         bool
	prefix      bool // a space before each segment
	prefixFirst bool // or before the first only, where no token stands before it
	metaspace   bool
	added       added
}

func newNormaliser(p *workerv1.Profile) (normaliser, error) {
	n := normaliser{prefix: p.DummyPrefix, prefixFirst: p.DummyPrefixFirst, metaspace: p.Metaspace}
	switch p.Normalizer {
	case "":
	case "nfc":
		n.nfc = true
	default:
		return n, fmt.Errorf("the tokenizer's normaliser %q is not known", p.Normalizer)
	}
	var err error
	n.added, err = newAdded(p.AddedTokens)
	return n, err
}

// append appends the normal form of a text.
func (n *normaliser) append(dst []byte, text string) []byte {
	for first := true; text != ""; first = false {
		at, token := n.added.next(text)
		segment := text[:at]
		if token == nil {
			return n.segment(dst, segment, first)
		}
		rest := text[at+len(token.Content):]
		if token.Lstrip {
			segment = strings.TrimRightFunc(segment, unicode.IsSpace)
		}
		if token.Rstrip {
			rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
		}
		dst = n.segment(dst, segment, first)
		dst = append(dst, token.Content...)
		text = rest
	}
	return dst
}

// isWord says that no letter or digit stands beside text[from:to].
func isWord(text string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:from])
	after, _ := utf8.DecodeRuneInString(text[to:])
	letter := func(r rune) bool {
		return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
	}
	return !letter(before) && !letter(after)
}

var underline = []byte("\u2581")

func (n *normaliser) segment(dst []byte, segment string, first bool) []byte {
	if segment == "" {
		return dst
	}
	if (n.prefix || n.prefixFirst && first) && (n.metaspace || segment[0] != ' ') {
		dst = append(dst, ' ')
	}
	start := len(dst)
	if n.nfc {
		dst = appendNFC(dst, segment)
	} else {
		dst = append(dst, segment...)
	}
	if n.metaspace && bytes.Contains(dst[start:], underline) {
		dst = append(dst[:start], bytes.ReplaceAll(dst[start:], underline, []byte(" "))...)
	}
	return dst
}

// appendNFC is norm.NFC.AppendString, many times faster on text that is mostly ASCII or Chinese. Such is in its normal form, and
// joins nothing before it; what follows is normalised, and may join what was appended before.
func appendNFC(dst []byte, text string) []byte {
	for text != "" {
		plain := inert(text)
		dst, text = append(dst, text[:plain]...), text[plain:]
		other := mixed(text)
		dst, text = norm.NFC.AppendString(dst, text[:other]), text[other:]
	}
	return dst
}

// longInert of inert text are worth beginning anew behind them, in bytes.
const longInert = 256

// mixed is how much of a text, which begins with nothing inert, stands before a long run of what is.
func mixed(text string) int {
	for i := longInert; i+2*longInert <= len(text); i += longInert {
		for n := 1; n < utf8.UTFMax && !utf8.RuneStart(text[i]); n++ {
			i++
		}
		if inert(text[i:i+longInert]) > longInert-utf8.UTFMax {
			return i
		}
	}
	return len(text)
}

// inert is how many bytes a text begins with that are characters which are in their normal form and join nothing before them.
func inert(text string) int {
	i := 0
	for i < len(text) {
		switch c := text[i]; {
		case c < utf8.RuneSelf:
			i += ascii(text[i:])
		case i+2 < len(text) && chinese(c, text[i+1], text[i+2]):
			i += 3
		default:
			return i
		}
	}
	return i
}

// chinese says that three bytes are a character of Chinese or its punctuation: U+4000 to U+9FFF, U+3000 to U+3029, U+FF00 to U+FF3F.
func chinese(a, b, c byte) bool {
	switch {
	case c&0xc0 != 0x80 || b&0xc0 != 0x80:
		return false
	case a == 0xe3:
		return b == 0x80 && c <= 0xa9
	case a == 0xef:
		return b == 0xbc
	}
	return a >= 0xe4 && a <= 0xe9
}

// ascii is how many bytes of ASCII a text begins with.
func ascii(text string) int {
	i := 0
	for ; i+8 <= len(text); i += 8 {
		if (text[i]|text[i+1]|text[i+2]|text[i+3]|text[i+4]|text[i+5]|text[i+6]|text[i+7])&utf8.RuneSelf != 0 {
			break
		}
	}
	for i < len(text) && text[i] < utf8.RuneSelf {
		i++
	}
	return i
}
