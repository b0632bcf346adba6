package worker

import (
	"bytes"
	"encoding/json"

	"github.com/spokegate/spokegate/openai"
)

// stripper takes out of a stream the usage that the shim asked for and the client did not, and puts it into comments.
// Every SSE client skips them; a door's meter reads them.
//
// "usage":null stays: the engines that write it do so unasked.
type stripper struct {
	client                    bool // the client asked for usage: the last chunk with it is the client's
	prompt, cached, reasoning said
}

// event is one event of chat or text completions.
func (s *stripper) event(out, event []byte, data []span) []byte {
	if len(data) == 0 || !bytes.Contains(event, []byte(`"usage"`)) {
		return append(out, event...)
	}
	chunk := readChunk(joined(event, data))
	switch {
	case !chunk.counted || !chunk.choices || chunk.empty && s.client:
		return append(out, event...)
	case chunk.empty:
		return s.comment(out, chunk.usage)
	}
	out = append(out, event[:lineStart(event, data[0].start)]...)
	return remove(s.comment(out, chunk.usage), event, data, chunk.cut)
}

// chunk is what matters of an event's JSON.
type chunk struct {
	counted bool   // it has usage that is an object
	choices bool   // it has choices
	empty   bool   // and they are an empty list
	usage   []byte // the object
	cut     span   // the member and its comma
}

func readChunk(data []byte) chunk {
	var c chunk
	openai.Each(data, func(key, value []byte) bool {
		switch string(key) {
		case `"choices"`:
			c.choices = true
			c.empty = value[0] == '[' && len(bytes.TrimSpace(value[1:])) == 1
		case `"usage"`:
			if c.counted = value[0] == '{' && value[len(value)-1] == '}'; c.counted {
				c.usage = value
				c.cut = memberSpan(data, span{offset(data, key), offset(data, value) + len(value)})
			}
		}
		return true
	})
	return c
}

// offset is where part begins in whole. Both are slices of one array to its end.
func offset(whole, part []byte) int { return cap(whole) - cap(part) }

// memberSpan adds to a member the comma that goes with it: the one before, or the one after if it is the first.
func memberSpan(data []byte, m span) span {
	before := bytes.TrimRight(data[:m.start], " \t\r\n")
	if n := len(before); n > 0 && before[n-1] == ',' {
		return span{n - 1, m.end}
	}
	after := bytes.TrimLeft(data[m.end:], " \t\r\n")
	if len(after) > 0 && after[0] == ',' {
		after = bytes.TrimLeft(after[1:], " \t\r\n")
		return span{m.start, len(data) - len(after)}
	}
	return m
}

// remove appends the event from its first data line on, without the bytes that cut names. cut is in terms of the joined
// data.
func remove(out, event []byte, data []span, cut span) []byte {
	at, base := lineStart(event, data[0].start), 0
	for _, d := range data {
		from := d.start + min(max(cut.start-base, 0), d.end-d.start)
		to := d.start + min(max(cut.end-base, 0), d.end-d.start)
		out = append(out, event[at:from]...)
		at = max(to, from)
		base += d.end - d.start + 1
	}
	return append(out, event[at:]...)
}

// lineStart is the beginning of the line that holds at, which is near.
func lineStart(event []byte, at int) int {
	for at > 0 && event[at-1] != '\n' && event[at-1] != '\r' {
		at--
	}
	return at
}

// comment writes what the usage says as a comment line: always the completion, which may be that of one choice, and of the
// rest what it has not said before.
func (s *stripper) comment(out, usage []byte) []byte {
	start := len(out)
	out = append(out, ": "+openai.UsageComment...)
	begin := len(out)
	add := func(name string, value []byte) {
		if value[0] != '-' && (value[0] < '0' || value[0] > '9') {
			return // null, or nothing that a meter could read
		}
		out = append(out, ',', '"')
		out = append(append(append(out, name...), '"', ':'), value...)
	}
	openai.Each(usage, func(key, value []byte) bool {
		switch string(key) {
		case `"prompt_tokens"`:
			s.prompt.unlessSaid(value, func() { add("prompt_tokens", value) })
		case `"completion_tokens"`:
			add("completion_tokens", value)
		case `"prompt_tokens_details"`:
			addInner(value, `"cached_tokens"`, func(v []byte) { s.cached.unlessSaid(v, func() { add("cached_tokens", v) }) })
		case `"completion_tokens_details"`:
			addInner(value, `"reasoning_tokens"`, func(v []byte) { s.reasoning.unlessSaid(v, func() { add("reasoning_tokens", v) }) })
		}
		return true
	})
	if len(out) == begin {
		return out[:start]
	}
	out[begin] = '{'
	return append(out, "}\n"...)
}

// said is the number that was written last.
type said struct {
	number [20]byte
	size   int
}

// unlessSaid calls say for a number that is not the one said last.
func (s *said) unlessSaid(number []byte, say func()) {
	if s.size > 0 && string(s.number[:s.size]) == string(number) {
		return
	}
	say()
	if s.size = 0; len(number) <= len(s.number) {
		s.size = copy(s.number[:], number)
	}
}

func addInner(object []byte, name string, add func([]byte)) {
	openai.Each(object, func(key, value []byte) bool {
		if string(key) == name {
			add(value)
		}
		return true
	})
}

// wholeData says that the data of an event is all there.
func wholeData(data []byte) bool {
	return json.Valid(data) || string(bytes.TrimSpace(data)) == "[DONE]"
}
