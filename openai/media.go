package openai

import "bytes"

// MediaURLs is the name under which an endpoint allows requests that Fetches.
const MediaURLs = "media_urls"

// role is what a member's name means to an engine that looks for media.
type role uint8

const (
	noMedia     role = iota
	mediaHolder      // a url inside is an address
	mediaText        // and so is its own text
	mediaURL         // an address inside of the two above
)

// roles has the members by which vLLM, SGLang and TensorRT-LLM find what they open by themselves: parts of chat messages,
// Responses items, Anthropic blocks, inputs of SGLang's embeddings. Engines open paths as well as web addresses.
var roles = map[string]role{
	"image_url": mediaText, "video_url": mediaText, "audio_url": mediaText, "file_url": mediaText, "input_audio": mediaText,
	"image": mediaText, "video": mediaText, "audio": mediaText, "source": mediaHolder, "url": mediaURL,
}

// Fetches says whether the request names anything, other than a data: URL, that an engine would fetch: an image by its
// address, a file, a tool server. Whoever may name an address lets the engine's network be reached through it. body is what
// the request was scanned from. What a tool was called with, the tools' schemas and the client's own metadata are not
// looked at; all else is, at any depth.
func (r *Request) Fetches(body []byte) bool {
	for _, m := range r.Members {
		v := body[m.Value.Start:m.Value.End]
		switch m.Name {
		case "metadata":
		case "tools":
			if remoteTool(v) {
				return true
			}
		default:
			if s := (seeker{b: v}); s.value(roles[m.Name], false) {
				return true
			}
		}
	}
	return false
}

// seeker looks for addresses in JSON that [Scan] accepted. It reads each byte once, however deep they are.
type seeker struct {
	b []byte
	i int
}

// value looks through the value that starts here, that of a member with a role, and says whether it found one. held: some
// object around it is in a holder.
func (s *seeker) value(as role, held bool) bool {
	start := s.i
	switch s.b[start] {
	case '{':
		return s.parts('}', as, held || as == mediaHolder || as == mediaText)
	case '[':
		return s.parts(']', as, held) // an element stands for the list
	}
	s.i = valueEnd(s.b, start)
	return (as == mediaText || as == mediaURL && held) && s.b[start] == '"' && remote(s.b[start:s.i])
}

func (s *seeker) parts(end byte, as role, held bool) bool {
	for s.i = skipSpace(s.b, s.i+1); s.b[s.i] != end; s.i = skipSpace(s.b, s.i) {
		if s.b[s.i] == ',' {
			s.i = skipSpace(s.b, s.i+1)
		}
		arguments := false
		if end == '}' {
			as, arguments = s.key()
		}
		if arguments {
			s.i = valueEnd(s.b, s.i)
		} else if s.value(as, held) {
			return true
		}
	}
	s.i++
	return false
}

// key reads a member's name and goes to its value. arguments: it is what a tool was called with.
func (s *seeker) key() (as role, arguments bool) {
	var buf [32]byte
	end := stringEnd(s.b, s.i)
	name := Unquote(buf[:0], s.b[s.i:end])
	s.i = skipSpace(s.b, skipSpace(s.b, end)+1) // over the colon
	return roles[string(name)], string(name) == "input"
}

// remoteTool looks for servers that the engine is to call.
func remoteTool(tools []byte) (found bool) {
	var buf [32]byte
	Each(tools, func(_, tool []byte) bool {
		Each(tool, func(key, _ []byte) bool {
			found = found || string(Unquote(buf[:0], key)) == "server_url"
			return !found
		})
		return !found
	})
	return found
}

// remote says whether a JSON string is an address outside of the request. Its beginning tells, in any spelling: an escape
// takes six bytes at most.
func remote(raw []byte) bool {
	const data = "data:"
	var buf [6 * len(data)]byte
	text := raw[1 : len(raw)-1]
	begin, _ := unescape(buf[:0], text[:min(len(text), len(buf))])
	return len(begin) > 0 && (len(begin) < len(data) || !bytes.EqualFold(begin[:len(data)], []byte(data)))
}
