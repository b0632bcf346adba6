package prompt

import (
	"encoding/hex"

	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/openai"
)

// message renders the role first, then the content, then what else there is, in the order given.
func (r *renderer) message(m []byte) {
	var role, content []byte
	more := false
	openai.Each(m, func(key, v []byte) bool {
		switch string(key) {
		case `"role"`:
			role = v
		case `"content"`:
			content = v
		default:
			more = true
		}
		return true
	})
	r.out = append(r.out, markMessage)
	switch {
	case kind(m) != '{':
		r.raw(m)
	case kind(role) == '"':
		r.out = openai.Unquote(r.out, role)
	default:
		r.raw(role)
	}
	r.content(content)
	if more {
		r.members(m, true)
	}
	r.out = append(r.out, markEnd)
}

// mostInline is how much of a value in a part that is no text counts, in bytes: an image that is sent inline has a million of them,
// and is some thousand tokens to the engine.
const mostInline = 4096

// appendName appends as many bytes that stand for a value: equal for equal ones, and unlike from the beginning on for others.
func appendName(dst, v []byte) []byte {
	h := xxh3.Hash128(v).Bytes()
	for range mostInline / hex.EncodedLen(len(h)) {
		dst = hex.AppendEncode(dst, h[:])
	}
	return dst
}

// members renders the members of an object, but for those of a message that were rendered before.
func (r *renderer) members(object []byte, ofMessage bool) {
	openai.Each(object, func(key, v []byte) bool {
		switch string(key) {
		case `"cache_control"`:
			return true
		case `"role"`, `"content"`:
			if ofMessage {
				return true
			}
		}
		r.out = append(append(append(r.out, markMember), key...), markValue)
		if !ofMessage && len(v) > mostInline {
			r.out = appendName(r.out, v)
		} else {
			r.out = append(r.out, v...)
		}
		return true
	})
}

// content renders a message's content: a string, or a list of parts.
func (r *renderer) content(v []byte) {
	switch kind(v) {
	case '"':
		r.text(v)
	case '[':
		openai.Each(v, func(_, p []byte) bool {
			r.part(p)
			return true
		})
	default:
		if string(v) != "null" { // the same as none
			r.raw(v)
		}
	}
}

func (r *renderer) part(p []byte) {
	switch text := textOf(p); {
	case kind(text) == '"':
		r.text(text)
	case kind(p) == '{':
		r.out = append(r.out, markPart)
		r.members(p, false)
		r.out = append(r.out, markEnd)
	default:
		r.raw(p)
	}
}

// textOf returns the text of a part that is a string, or text and nothing else, as written; else what is no string.
func textOf(part []byte) []byte {
	if kind(part) == '"' {
		return part
	}
	var text []byte
	plain := true
	openai.Each(part, func(key, v []byte) bool {
		switch string(key) {
		case `"text"`:
			text = v
		case `"type"`:
			plain = isTextType(v)
		case `"cache_control"`, `"annotations"`, `"logprobs"`: // say nothing to the model
		default:
			plain = false
		}
		return plain
	})
	if !plain {
		return nil
	}
	return text
}

func isTextType(v []byte) bool {
	switch string(v) {
	case `"text"`, `"input_text"`, `"output_text"`:
		return true
	}
	return false
}
