package kv

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// tokenizerFile is what we need of a tokenizer.json.
type tokenizerFile struct {
	AddedTokens   []addedToken   `json:"added_tokens"`
	Normalizer    *step          `json:"normalizer"`
	PreTokenizer  *step          `json:"pre_tokenizer"`
	PostProcessor *step          `json:"post_processor"`
	Decoder       *step          `json:"decoder"`
	Model         tokenizerModel `json:"model"`
}

type tokenizerModel struct {
	Type  string          `json:"type"`
	Vocab json.RawMessage `json:"vocab"`
}

type addedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// step is a normalizer, pre-tokenizer, post-processor or decoder; a sequence has its parts under one of four names.
type step struct {
	Type           string          `json:"type"`
	Normalizers    []step          `json:"normalizers"`
	PreTokenizers  []step          `json:"pretokenizers"`
	Processors     []step          `json:"processors"`
	Decoders       []step          `json:"decoders"`
	Prepend        string          `json:"prepend"`
	Pattern        json.RawMessage `json:"pattern"`
	Content        string          `json:"content"`
	Replacement    string          `json:"replacement"`
	AddPrefixSpace *bool           `json:"add_prefix_space"`
	PrependScheme  string          `json:"prepend_scheme"`
	Single         []templateItem  `json:"single"`
}

type templateItem struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
}

// all are the steps of a sequence, one after the other.
func (s *step) all() []step {
	if s == nil {
		return nil
	}
	if s.Type != "Sequence" {
		return []step{*s}
	}
	var out []step
	for _, part := range slices.Concat(s.Normalizers, s.PreTokenizers, s.Processors, s.Decoders) {
		out = append(out, part.all()...)
	}
	return out
}

func (s *step) has(kind string) bool {
	return slices.ContainsFunc(s.all(), func(p step) bool { return p.Type == kind })
}

// replaces says whether a step puts one string for another.
func (s step) replaces(from, to string) bool {
	var pattern struct{ String string }
	return s.Type == "Replace" && json.Unmarshal(s.Pattern, &pattern) == nil && pattern.String == from && s.Content == to
}

// scheme is how entries of the vocabulary stand for bytes: the decoder says so.
func (t *tokenizerFile) scheme() (byteScheme, error) {
	switch {
	case t.Decoder.has("ByteLevel"), t.Decoder == nil && t.PreTokenizer.has("ByteLevel"):
		return byteLevel, nil
	case t.metaspace():
		return sentencePiece, nil
	case t.Decoder == nil:
		return nil, errors.New("tokenizer.json has no decoder: what its tokens stand for is not known")
	}
	return nil, fmt.Errorf("the decoder %q of tokenizer.json is not known", t.Decoder.Type)
}

// metaspace says that U+2581 stands for a space.
func (t *tokenizerFile) metaspace() bool {
	return t.Decoder.has("Metaspace") || slices.ContainsFunc(t.Decoder.all(), func(s step) bool { return s.replaces(metaspace, " ") })
}

// prefix says whether the tokenizer puts a space before text: at the start of each segment between added tokens, or only
// where text is the first of all.
func (t *tokenizerFile) prefix() (always, first bool) {
	for _, s := range t.Normalizer.all() {
		if s.Type == "Prepend" && s.Prepend == metaspace {
			return true, false
		}
	}
	for _, s := range t.PreTokenizer.all() {
		switch {
		case s.Type == "Metaspace" && s.PrependScheme == "first":
			return false, true
		case s.Type == "Metaspace" && s.PrependScheme == "always":
			return true, false
		case s.Type == "Metaspace" && s.PrependScheme == "" && (s.AddPrefixSpace == nil || *s.AddPrefixSpace):
			return true, false
		case s.Type == "ByteLevel" && s.AddPrefixSpace != nil && *s.AddPrefixSpace:
			return true, false
		}
	}
	return false, false
}

// normalizer names what is done to text beside what metaspace and prefix say; more than one are joined by "+".
func (t *tokenizerFile) normalizer() string {
	var names []string
	for _, s := range t.Normalizer.all() {
		if s.replaces(" ", metaspace) || s.Type == "Prepend" && s.Prepend == metaspace {
			continue
		}
		names = append(names, strings.ToLower(s.Type))
	}
	return strings.Join(names, "+")
}

// putsFirst says whether the post-processor puts a token before the text.
func (t *tokenizerFile) putsFirst(token string) bool {
	for _, s := range t.PostProcessor.all() {
		if s.Type == "TemplateProcessing" && len(s.Single) > 0 && s.Single[0].SpecialToken != nil && s.Single[0].SpecialToken.ID == token {
			return true
		}
	}
	return false
}

// profile is what a picker must do to text as this tokenizer does.
func (t *tokenizerFile) profile() *workerv1.Profile {
	p := &workerv1.Profile{Normalizer: t.normalizer(), Metaspace: t.metaspace()}
	p.DummyPrefix, p.DummyPrefixFirst = t.prefix()
	for _, a := range t.AddedTokens {
		p.AddedTokens = append(p.AddedTokens, &workerv1.AddedToken{
			Content: a.Content, Lstrip: a.LStrip, Rstrip: a.RStrip, Normalized: a.Normalized, SingleWord: a.SingleWord, Special: a.Special})
	}
	return p
}
