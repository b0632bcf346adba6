// Package prompt turns a request into the bytes by which prompts are compared: what an engine has in its cache for one
// request it can use for another as far as their renderings are equal.
//
// It promises:
//   - The rendering of a turn is a prefix of the rendering of the next one, which is the same with more messages.
//   - Different conversations render differently: role, text and everything else are set apart by bytes that no text
//     contains. The same text given as a string or as one text part renders the same, as engines make no difference either.
//   - It never fails. What it does not understand it renders as written; but of a large value that is no text, such as an inline
//     image, 4 KiB that stand for it, about as much as it is to an engine.
//
// It does not promise the bytes that an engine's chat template makes, and it checks nothing: requests come from openai.Scan.
// Members that only steer sampling are left out; a moving cache_control, which marks no text, too.
package prompt

import (
	"bytes"

	"github.com/spokegate/spokegate/openai"
)

// Marks are bytes that never occur in UTF-8.
const (
	markModel   = 0xF8 // model name
	markSetting = 0xF9 // name, markValue, JSON as written: what comes before all messages
	markValue   = 0xFA
	markMessage = 0xFB // role, then texts, parts and members, then markEnd
	markText    = 0xFC // text, decoded
	markMember  = 0xFD // name with its quotes, markValue, JSON as written
	markPart    = 0xFE // members of a part that is no text, then markEnd
	markEnd     = 0xFF
	markRaw     = 0xF7 // JSON as written
)

// Settings that shape the prompt, in the order in which templates put them, all before the first message.
var (
	chatSettings      = []string{"cache_salt", "tools", "functions", "documents", "chat_template", "chat_template_kwargs"}
	textSettings      = []string{"cache_salt"}
	responsesSettings = []string{"cache_salt", "previous_response_id", "conversation", "prompt", "tools", "instructions"}
	messagesSettings  = []string{"cache_salt", "tools"}
)

// Render appends the rendering of a request to dst. body is what req was scanned from; it is not kept.
func Render(dst []byte, op openai.Op, req *openai.Request, body []byte) []byte {
	r := renderer{dst, req, body}
	r.out = append(append(r.out, markModel), req.Model...)
	switch op {
	case openai.Chat:
		r.settings(chatSettings)
		r.messages("messages")
	case openai.Completions:
		r.settings(textSettings)
		r.texts("prompt")
		r.settings([]string{"suffix"}) // after the text, which grows
	case openai.Embeddings:
		r.settings(textSettings)
		r.texts("input")
	case openai.Responses:
		r.settings(responsesSettings)
		r.messages("input")
	case openai.Messages:
		r.settings(messagesSettings)
		r.system()
		r.messages("messages")
	default:
		r.out = append(append(r.out, markRaw), body...)
	}
	return r.out
}

type renderer struct {
	out  []byte
	req  *openai.Request
	body []byte
}

func (r *renderer) get(name string) []byte {
	s, ok := r.req.Get(name)
	if !ok {
		return nil
	}
	return r.body[s.Start:s.End]
}

func (r *renderer) settings(names []string) {
	for _, name := range names {
		if v := r.get(name); v != nil {
			r.out = append(append(r.out, markSetting), name...)
			r.out = append(append(r.out, markValue), v...)
		}
	}
}

// system renders Anthropic's system text, which stands outside the messages, as the first of them.
func (r *renderer) system() {
	if v := r.get("system"); v != nil {
		r.out = append(append(r.out, markMessage), "system"...)
		r.content(v)
		r.out = append(r.out, markEnd)
	}
}

// messages renders a list of messages. A string is what one user message would be.
func (r *renderer) messages(name string) {
	v := r.get(name)
	switch kind(v) {
	case '[':
		openai.Each(v, func(_, m []byte) bool {
			r.message(m)
			return true
		})
	case '"':
		r.out = append(append(r.out, markMessage), "user"...)
		r.text(v)
		r.out = append(r.out, markEnd)
	default:
		r.raw(v)
	}
}

// texts renders a prompt or input: a string, several, or tokens, without an end, so that it may grow.
func (r *renderer) texts(name string) {
	v := r.get(name)
	switch kind(v) {
	case '"':
		r.text(v)
	case '[':
		openai.Each(v, func(_, first []byte) bool {
			if kind(first) == '"' {
				r.strings(v)
			} else {
				r.raw(bytes.TrimSuffix(v, []byte("]")))
			}
			return false
		})
	default:
		r.raw(v)
	}
}

func (r *renderer) strings(list []byte) {
	openai.Each(list, func(_, v []byte) bool {
		r.part(v)
		return true
	})
}

func (r *renderer) text(v []byte) {
	r.out = openai.Unquote(append(r.out, markText), v)
}

// raw renders a value as written; nothing, if there is none.
func (r *renderer) raw(v []byte) {
	if len(v) > 0 {
		r.out = append(append(r.out, markRaw), v...)
	}
}

// kind is the first byte of a value; 0 if there is none.
func kind(v []byte) byte {
	if len(v) == 0 {
		return 0
	}
	return v[0]
}
