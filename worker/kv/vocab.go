package kv

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// vocabulary turns tokens into the bytes that they stand for, each by itself.
type vocabulary interface {
	// appendToken appends the bytes of a token; false: it is not known, or stands for no text.
	appendToken(to []byte, token uint32) ([]byte, bool)
}

// maxVocabulary bounds ids in a tokenizer.json; the largest real one is below 300,000.
const maxVocabulary = 4 << 20

// table of tokens: their bytes in a row, and where each ends.
type pieces struct {
	bytes []byte
	ends  []uint32
}

func (p *pieces) appendToken(to []byte, token uint32) ([]byte, bool) {
	if int64(token) >= int64(len(p.ends)) {
		return to, false
	}
	from := uint32(0)
	if token > 0 {
		from = p.ends[token-1]
	}
	if from == p.ends[token] {
		return to, false
	}
	return append(to, p.bytes[from:p.ends[token]]...), true
}

// rawTokens is the simulator's vocabulary: a token is its four bytes, little-endian.
type rawTokens struct{}

func (rawTokens) appendToken(to []byte, token uint32) ([]byte, bool) {
	return binary.LittleEndian.AppendUint32(to, token), true
}

// newPieces makes the table of a tokenizer.json. Added tokens stand for what they say, whatever the model says of them.
func newPieces(t *tokenizerFile, scheme byteScheme) (*pieces, error) {
	words, err := t.Model.words()
	if err != nil {
		return nil, err
	}
	most := uint32(0)
	texts := map[uint32]string{}
	for word, id := range words {
		texts[id] = scheme(word)
		most = max(most, id)
	}
	for _, a := range t.AddedTokens {
		texts[a.ID] = a.Content
		if t.metaspace() {
			texts[a.ID] = strings.ReplaceAll(a.Content, metaspace, " ")
		}
		most = max(most, a.ID)
	}
	if len(texts) == 0 {
		return nil, errors.New("the vocabulary is empty")
	}
	if most > maxVocabulary {
		return nil, fmt.Errorf("a token has the id %d, above %d", most, maxVocabulary)
	}
	p := &pieces{ends: make([]uint32, most+1)}
	for id := range p.ends {
		p.bytes = append(p.bytes, texts[uint32(id)]...)
		p.ends[id] = uint32(len(p.bytes))
	}
	return p, nil
}

// byteScheme says what an entry of the vocabulary stands for.
type byteScheme func(word string) string

const metaspace = "\u2581"

// sentencePiece has U+2581 for a space, and <0xNN> for a byte.
func sentencePiece(word string) string {
	if len(word) == 6 && strings.HasPrefix(word, "<0x") && word[5] == '>' {
		if b, err := strconv.ParseUint(word[3:5], 16, 8); err == nil {
			return string([]byte{byte(b)})
		}
	}
	return strings.ReplaceAll(word, metaspace, " ")
}

// byteLevel has a printable character for each byte, as GPT-2 chose them. What holds any other character is text as it is.
func byteLevel(word string) string {
	out := make([]byte, 0, len(word))
	for _, r := range word {
		b, ok := charBytes[r]
		if !ok {
			return word
		}
		out = append(out, b)
	}
	return string(out)
}

// charBytes maps GPT-2's characters to bytes: printable ones stand for themselves, the others follow from U+0100 on.
var charBytes = func() map[rune]byte {
	m := map[rune]byte{}
	next := rune(0x100)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			m[b] = byte(b)
			continue
		}
		m[next] = byte(b)
		next++
	}
	return m
}()

// words are the entries of the model with their ids: an object for BPE, a list of pairs for Unigram.
func (m *tokenizerModel) words() (map[string]uint32, error) {
	switch m.Type {
	case "", "BPE":
		var words map[string]uint32
		if err := json.Unmarshal(m.Vocab, &words); err != nil {
			return nil, fmt.Errorf("model.vocab: %w", err)
		}
		return words, nil
	case "Unigram":
		var list [][2]json.RawMessage
		if err := json.Unmarshal(m.Vocab, &list); err != nil {
			return nil, fmt.Errorf("model.vocab: %w", err)
		}
		words := make(map[string]uint32, len(list))
		for id, pair := range list {
			var word string
			if err := json.Unmarshal(pair[0], &word); err != nil || !utf8.ValidString(word) {
				return nil, fmt.Errorf("model.vocab: entry %d is no text", id)
			}
			words[word] = uint32(id)
		}
		return words, nil
	}
	return nil, fmt.Errorf("a model of the type %q is not known", m.Type)
}
