package openai

import "bytes"

// MediaURLs is the name under which an endpoint allows requests that are Remote.
const MediaURLs = "media_urls"

// place says what a value is to the door while the scanner passes by. 0: nothing in it is looked at.
type place uint16

const (
	top      place = 1 << iota // the body's own object
	looked                     // addresses in it would be opened by an engine
	prompted                   // its strings are text of the prompt
	counted                    // its numbers are tokens of the prompt
	several                    // each string or list in this list is a prompt of its own
	verbatim                   // it is in the prompt as it is written, names and all
	holder                     // a url or data in an object here is media
	held                       // some object around it was a holder
	address                    // its string is a medium, or says where one is
	inline                     // its string is a medium, if it has no spaces
	toolList
	tool
)

// inherited is what the members of an object have of it.
const inherited = looked | prompted | held

// media are the places by which vLLM, SGLang and TensorRT-LLM find what they open by themselves: parts of chat messages,
// Responses items, Anthropic blocks, inputs of SGLang's embeddings. Engines open paths as well as web addresses.
const media = holder | address

// longestPlace is the length of the longest name that ofMember knows.
const longestPlace = len("chat_template_kwargs")

// element returns what the elements of a list are: an element stands for the list, but among tools.
func (p place) element() place {
	switch {
	case p&toolList != 0:
		return tool
	case p&tool != 0:
		return 0
	}
	return p &^ several
}

// memberAt returns what a member of an object at p is; raw is its name as written, without quotes.
func (s *scanner) memberAt(p place, raw []byte) place {
	if p == 0 {
		return 0
	}
	var room [6 * longestPlace]byte
	if len(raw) > len(room) {
		raw = nil // none that matters
	} else if bytes.IndexByte(raw, '\\') >= 0 {
		raw, _ = unescape(room[:0], raw)
	}
	switch {
	case p&toolList != 0:
		return tool
	case p&tool != 0:
		s.remote = s.remote || string(raw) == "server_url"
		return 0
	case p&top != 0:
		return ofBody(raw)
	}
	if p&holder != 0 {
		p |= held
	}
	return ofMember(p&inherited, raw)
}

// ofBody returns what a member of the top level is.
func ofBody(name []byte) place {
	switch string(name) {
	case "messages", "system", "instructions", "documents", "suffix":
		return looked | prompted
	case "prompt":
		return looked | prompted | counted | several
	case "input":
		return looked | prompted | counted
	case "functions", "chat_template_kwargs":
		return looked | verbatim
	case "tools":
		return toolList | verbatim
	case "metadata":
		return 0
	}
	return ofMember(looked, name)
}

// ofMember returns what a member below the top level is, that has p of its object.
func ofMember(p place, name []byte) place {
	switch string(name) {
	case "image_url", "video_url", "audio_url", "file_url", "input_audio", "image", "video", "audio":
		return p | media
	case "source":
		return p | holder
	case "file_data":
		return p | inline
	case "url":
		if p&held != 0 {
			return p | address
		}
	case "data":
		if p&held != 0 {
			return p | inline
		}
	case "input": // what a tool was called with
		if p&prompted != 0 {
			return verbatim
		}
		return 0
	}
	return p
}

// took notes a string at p; raw is what stands between its quotes, size the bytes that it decodes to.
func (s *scanner) took(p place, raw []byte, size int) {
	medium := p&address != 0 || p&inline != 0 && bytes.IndexByte(raw[:min(len(raw), maxLook)], ' ') < 0
	switch {
	case medium && len(raw) > 0:
		s.remote = s.remote || p&address != 0 && remote(raw)
		if p&prompted != 0 {
			s.prompt.Media++
		}
	case p&prompted != 0:
		s.prompt.Text += int64(size)
	}
}

// maxLook is how far into a string spaces are looked for: text has some, base64 has none.
const maxLook = 256

// remote says whether what stands in a JSON string is an address outside of the request. Its beginning tells, in any
// spelling: an escape takes six bytes at most.
func remote(raw []byte) bool {
	const data = "data:"
	var buf [6 * len(data)]byte
	begin, _ := unescape(buf[:0], raw[:min(len(raw), len(buf))])
	return len(begin) > 0 && (len(begin) < len(data) || !bytes.EqualFold(begin[:len(data)], []byte(data)))
}
