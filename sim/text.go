package sim

import "strings"

// opening is what every plain answer begins with: whole tokens.
const opening = "(simulator) "

// words are of three letters, so that with a space each is one token.
const words = "the sun has set and our old cat can see one red fox run far off its way out who may yet try all day " +
	"for new air sea ice oak hut map key pen cup box toy dog hen owl bee ant elm fig nut pie jam tea bun rye ham egg "

const (
	openingTokens = len(opening) / TokenBytes
	wordCount     = len(words) / TokenBytes
	// stopWindow bounds how far ahead a stop sequence is looked for, in tokens.
	stopWindow = 1 << 16
)

// script is one answer, decided in full before its first token.
type script struct {
	seed   uint64
	fixed  string // the text, where it is prescribed (JSON, arguments of a call)
	tokens int64  // tokens to generate
	length int64  // bytes of text shown; a stop sequence is generated but not shown
	finish string // "stop", "length" or "tool_calls"
	call   string // function called; then fixed are its arguments
	stop   string // the stop sequence that ended it
}

// ask is what a request says about the length of an answer.
type ask struct {
	max   int64 // tokens; negative: not given
	room  int64 // tokens left in the context
	stops []string
}

func (a ask) bound() int64 {
	if a.max >= 0 {
		return min(a.max, a.room)
	}
	return a.room
}

// talk writes words: up to the limit if one is given, else a length that depends on the seed.
func talk(seed uint64, a ask) script {
	s := script{seed: seed, tokens: a.bound(), finish: "length"}
	if natural := int64(24 + mix(seed)%40); a.max < 0 && natural <= a.room {
		s.tokens, s.finish = natural, "stop"
	}
	s.length = s.tokens * TokenBytes
	s.endAt(a.stops)
	return s
}

// recite gives a prescribed text.
func recite(text string, a ask) script {
	s := script{fixed: text, tokens: tokensOf(len(text)), length: int64(len(text)), finish: "stop"}
	if bound := a.bound(); s.tokens > bound {
		s.tokens, s.length, s.finish = bound, bound*TokenBytes, "length"
	}
	s.endAt(a.stops)
	return s
}

// endAt ends the answer at the first stop sequence in it.
func (s *script) endAt(stops []string) {
	if len(stops) == 0 {
		return
	}
	text := s.text(min(s.tokens, stopWindow))
	first := -1
	for _, stop := range stops {
		at := strings.Index(text, stop)
		if stop != "" && at >= 0 && (first < 0 || at < first) {
			first, s.stop = at, stop
		}
	}
	if first >= 0 {
		s.length, s.finish = int64(first), "stop"
		s.tokens = tokensOf(first + len(s.stop))
	}
}

// piece is the text of one token; empty where a stop sequence has begun.
func (s *script) piece(i int64) string {
	from := i * TokenBytes
	if from >= s.length {
		return ""
	}
	return s.raw(i)[:min(TokenBytes, s.length-from)]
}

func (s *script) raw(i int64) string {
	switch {
	case s.fixed != "":
		return s.fixed[i*TokenBytes : min((i+1)*TokenBytes, int64(len(s.fixed)))]
	case i < int64(openingTokens):
		return opening[i*TokenBytes : (i+1)*TokenBytes]
	default:
		w := mix(s.seed+uint64(i)) % uint64(wordCount) * TokenBytes
		return words[w : w+TokenBytes]
	}
}

// text is what the first n tokens show.
func (s *script) text(n int64) string {
	var b strings.Builder
	b.Grow(int(n * TokenBytes))
	for i := range n {
		b.WriteString(s.piece(i))
	}
	return b.String()
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
