package worker

import (
	"bytes"
	"encoding/json"

	"github.com/spokegate/spokegate/openai"
)

// stripper takes out of a stream the usage that the shim asked for and the client did not.
//
// "usage":null stays: the engines that write it do so unasked.
type stripper struct {
	client bool // the client asked for usage: the last chunk with it is the client's
}

// event is one event of chat or text completions. One that has nothing but usage vanishes.
func (s *stripper) event(out, event []byte, data []span) []byte {
	if len(data) == 0 || !bytes.Contains(event, []byte(`"usage"`)) {
		return append(out, event...)
	}
	chunk := readChunk(joined(event, data))
	switch {
	case !chunk.counted || !chunk.choices || chunk.failed || chunk.empty && s.client:
		return append(out, event...)
	case chunk.empty:
		return out
	}
	return remove(out, event, data, chunk.cut)
}

// chunk is what matters of an event's JSON.
type chunk struct {
	counted bool // it has usage that is an object
	choices bool // it has choices
	empty   bool // and they are an empty list
	failed  bool // it has an error, which is the client's
	cut     span // the member and its comma
}

func readChunk(data []byte) chunk {
	var c chunk
	openai.Each(data, func(key, value []byte) bool {
		switch string(key) {
		case `"choices"`:
			c.choices = true
			c.empty = value[0] == '[' && len(bytes.TrimSpace(value[1:])) == 1
		case `"error"`:
			c.failed = string(value) != "null"
		case `"usage"`:
			if c.counted = value[0] == '{' && value[len(value)-1] == '}'; c.counted {
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

// remove appends the event without the bytes that cut names. cut is in terms of the joined data.
func remove(out, event []byte, data []span, cut span) []byte {
	at, base := 0, 0
	for _, d := range data {
		from := d.start + min(max(cut.start-base, 0), d.end-d.start)
		to := d.start + min(max(cut.end-base, 0), d.end-d.start)
		out = append(out, event[at:from]...)
		at = max(to, from)
		base += d.end - d.start + 1
	}
	return append(out, event[at:]...)
}

// wholeData says that the data of an event is all there.
func wholeData(data []byte) bool {
	return json.Valid(data) || string(bytes.TrimSpace(data)) == doneMark
}
