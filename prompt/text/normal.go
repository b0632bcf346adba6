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
		dst = norm.NFC.AppendString(dst, segment)
	} else {
		dst = append(dst, segment...)
	}
	if n.metaspace && bytes.Contains(dst[start:], underline) {
		dst = append(dst[:start], bytes.ReplaceAll(dst[start:], underline, []byte(" "))...)
	}
	return dst
}
