package kv

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// family is a model's folder in the shape of a real one, much smaller.
type family struct {
	tokenizer, config string
	files             map[string]string
	profile           *workerv1.Profile
	tokens            map[uint32]string // what they stand for
}

// byteVocab is the part of a byte-level vocabulary that the families share: "Ġ" is a space, "Ċ" a newline, and "ä½ł" 你.
const byteVocab = `"a":0,"Ġhello":1,"Ċ":2,"ä½ł":3,"ä½":4,"!":5,"ĠĠ":6,"Ńå¥½":7`

var byteTokens = map[uint32]string{0: "a", 1: " hello", 2: "\n", 3: "你", 4: "\xe4\xbd", 5: "!", 6: "  ", 7: "\xad\xe5\xa5\xbd"}

var families = map[string]family{
	"Qwen": {
		tokenizer: `{"added_tokens":[
			{"id":8,"content":"<|im_start|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
			{"id":9,"content":"<think>","special":false}],
			"normalizer":{"type":"NFC"},
			"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"x"}},{"type":"ByteLevel","add_prefix_space":false}]},
			"post_processor":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},
			"model":{"type":"BPE","byte_fallback":false,"vocab":{` + byteVocab + `},"merges":["a b"]}}`,
		config: `{"add_bos_token":false,"bos_token":null,"eos_token":"<|im_start|>","chat_template":"{{ messages }}"}`,
		profile: &workerv1.Profile{Normalizer: "nfc", ChatTemplate: "{{ messages }}", EosToken: "<|im_start|>", AddedTokens: []*workerv1.AddedToken{
			{Content: "<|im_start|>", Special: true}, {Content: "<think>"}}},
		tokens: map[uint32]string{8: "<|im_start|>", 9: "<think>"},
	},
	"Llama 3": {
		tokenizer: `{"added_tokens":[{"id":9,"content":"<|begin_of_text|>","special":true}],"normalizer":null,
			"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
			"post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},
				{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|begin_of_text|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}]}]},
			"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{` + byteVocab + `}}}`,
		config: `{"bos_token":{"content":"<|begin_of_text|>","lstrip":false},"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]}`,
		profile: &workerv1.Profile{ChatTemplate: "D", BosToken: "<|begin_of_text|>", AddsBos: true, AddedTokens: []*workerv1.AddedToken{
			{Content: "<|begin_of_text|>", Special: true}}},
		tokens: map[uint32]string{8: "", 9: "<|begin_of_text|>"}, // 8 is nobody's
	},
	"Llama 2": {
		tokenizer: `{"added_tokens":[{"id":1,"content":"<s>","special":true,"normalized":false},{"id":9,"content":"<pad>","lstrip":true,"rstrip":true,"normalized":true}],
			"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
			"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}]},
			"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1}]},
			"model":{"type":"BPE","byte_fallback":true,"vocab":{"<unk>":0,"<s>":1,"</s>":2,"<0x0A>":3,"<0xE4>":4,"▁Hello":5,"▁▁":6,"é":7}}}`,
		config: `{"bos_token":{"content":"<s>"},"eos_token":"</s>","add_bos_token":true}`,
		files:  map[string]string{"chat_template.jinja": "from its own file"},
		profile: &workerv1.Profile{ChatTemplate: "from its own file", DummyPrefix: true, Metaspace: true, BosToken: "<s>", EosToken: "</s>", AddsBos: true,
			AddedTokens: []*workerv1.AddedToken{{Content: "<s>", Special: true}, {Content: "<pad>", Lstrip: true, Rstrip: true, Normalized: true}}},
		tokens: map[uint32]string{1: "<s>", 3: "\n", 4: "\xe4", 5: " Hello", 6: "  ", 7: "é", 9: "<pad>"},
	},
	"Llama 2, later form": {
		tokenizer: `{"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false},
			"decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"},"model":{"type":"BPE","vocab":{"<0xzz>":0,"▁Hello":1}}}`,
		files:   map[string]string{"chat_template.json": `{"chat_template":"J"}`},
		profile: &workerv1.Profile{DummyPrefixFirst: true, Metaspace: true, ChatTemplate: "J"},
		tokens:  map[uint32]string{0: "<0xzz>", 1: " Hello"},
	},
	"Gemma": {
		tokenizer: `{"added_tokens":[{"id":2,"content":"<bos>","special":true},{"id":3,"content":"▁▁▁","special":false},{"id":4,"content":"\n\n"}],
			"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},"pre_tokenizer":{"type":"Split","pattern":{"String":" "}},
			"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<bos>"}},{"Sequence":{"id":"A"}}]},
			"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}]},
			"model":{"type":"BPE","byte_fallback":true,"vocab":{"<pad>":0,"▁the":1,"<bos>":2,"<0x41>":5}}}`,
		config: `{"bos_token":"<bos>"}`,
		profile: &workerv1.Profile{Metaspace: true, BosToken: "<bos>", AddsBos: true, AddedTokens: []*workerv1.AddedToken{
			{Content: "<bos>", Special: true}, {Content: "▁▁▁"}, {Content: "\n\n"}}},
		tokens: map[uint32]string{1: " the", 2: "<bos>", 3: "   ", 4: "\n\n", 5: "A"},
	},
	"Unigram": {
		tokenizer: `{"normalizer":{"type":"Sequence","normalizers":[{"type":"Precompiled","precompiled_charsmap":"x"},{"type":"Lowercase"}]},
			"pre_tokenizer":{"type":"Metaspace","replacement":"▁","add_prefix_space":true},"decoder":{"type":"Metaspace","replacement":"▁"},
			"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["▁",-1.5],["▁a",-2]]}}`,
		profile: &workerv1.Profile{Normalizer: "precompiled+lowercase", DummyPrefix: true, Metaspace: true},
		tokens:  map[uint32]string{0: "<unk>", 1: " ", 2: " a"},
	},
	"DeepSeek": {
		tokenizer: `{"added_tokens":[{"id":9,"content":"<｜begin▁of▁sentence｜>","special":true}],"normalizer":{"type":"Sequence","normalizers":[]},
			"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true},"post_processor":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},
			"model":{"type":"BPE","vocab":{"<｜begin▁of▁sentence｜>":9,` + byteVocab + `}}}`,
		config: `{"add_bos_token":true,"bos_token":{"content":"<｜begin▁of▁sentence｜>"}}`,
		profile: &workerv1.Profile{DummyPrefix: true, BosToken: "<｜begin▁of▁sentence｜>", AddsBos: true, AddedTokens: []*workerv1.AddedToken{
			{Content: "<｜begin▁of▁sentence｜>", Special: true}}},
		tokens: map[uint32]string{9: "<｜begin▁of▁sentence｜>"},
	},
}

func (f family) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"tokenizer.json": f.tokenizer}
	if f.config != "" {
		files["tokenizer_config.json"] = f.config
	}
	for name, text := range f.files {
		files[name] = text
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFamilies(t *testing.T) {
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			m, err := ReadModel(f.write(t))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(f.profile, m.profile, protocmp.Transform()); diff != "" {
				t.Errorf("profile (-want +got):\n%s", diff)
			}
			tokens := f.tokens
			if strings.Contains(f.tokenizer, byteVocab) {
				tokens = map[uint32]string{}
				for _, some := range []map[uint32]string{byteTokens, f.tokens} {
					for id, text := range some {
						tokens[id] = text
					}
				}
			}
			for id, want := range tokens {
				got, ok := m.vocabulary.appendToken([]byte("x"), id)
				if string(got) != "x"+want || ok != (want != "") {
					t.Errorf("token %d: %q %v, want %q", id, got, ok, want)
				}
			}
			if got, ok := m.vocabulary.appendToken(nil, 1<<31); ok || len(got) > 0 {
				t.Errorf("a token beyond the vocabulary: %q", got)
			}
		})
	}
}

// Every byte has one character, and the usual ones stand for themselves.
func TestByteLevelKnowsAllBytes(t *testing.T) {
	seen := map[byte]bool{}
	for r, b := range charBytes {
		seen[b] = true
		if r < 0x100 && rune(b) != r || !utf8.ValidRune(r) {
			t.Errorf("%q stands for %x", r, b)
		}
	}
	if len(seen) != 256 || len(charBytes) != 256 {
		t.Errorf("%d bytes, %d characters", len(seen), len(charBytes))
	}
	if byteLevel("Ġ") != " " || byteLevel("Ċ") != "\n" || byteLevel("ł") != "\xa0" || byteLevel("Ń") != "\xad" {
		t.Error("a character stands for the wrong byte")
	}
}

func TestModelsThatCannotBeRead(t *testing.T) {
	qwen := families["Qwen"]
	for want, change := range map[string]func(*family){
		"tokenizer.json": func(f *family) { f.tokenizer = "{" },
		"WordPiece":      func(f *family) { f.tokenizer = strings.Replace(f.tokenizer, `"BPE"`, `"WordPiece"`, 1) },
		"no decoder":     func(f *family) { f.tokenizer = `{"model":{"type":"BPE","vocab":{"a":0}}}` },
		`"BPEDecoder"`: func(f *family) {
			f.tokenizer = strings.Replace(f.tokenizer, `"decoder":{"type":"ByteLevel"}`, `"decoder":{"type":"BPEDecoder"}`, 1)
		},
		"id 4294967295":        func(f *family) { f.tokenizer = strings.Replace(f.tokenizer, `"a":0`, `"a":4294967295`, 1) },
		"empty":                func(f *family) { f.tokenizer = `{"decoder":{"type":"ByteLevel"},"model":{"vocab":{}}}` },
		"vocab":                func(f *family) { f.tokenizer = strings.Replace(f.tokenizer, `"a":0`, `"a":"b"`, 1) },
		"chat_template":        func(f *family) { f.config = `{"chat_template":7}` },
		"tokenizer_config":     func(f *family) { f.config = `[` },
		"no such file or dire": nil,
	} {
		f, dir := qwen, t.TempDir()
		if change != nil {
			change(&f)
			dir = f.write(t)
		}
		if _, err := ReadModel(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// FuzzTokenizer: whatever a tokenizer.json says, it is taken or refused, and no token breaks the table.
func FuzzTokenizer(f *testing.F) {
	for _, some := range families {
		f.Add([]byte(some.tokenizer))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var file tokenizerFile
		if json.Unmarshal(data, &file) != nil {
			return
		}
		scheme, err := file.scheme()
		if err != nil {
			return
		}
		file.profile()
		p, err := newPieces(&file, scheme)
		if err != nil {
			return
		}
		for id := range uint32(len(p.ends) + 1) {
			p.appendToken(nil, id)
		}
	})
}
