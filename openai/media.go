package openai

import (
	"bytes"
	"strings"
)

// MediaURLs is the name under which an endpoint allows requests that Fetches.
const MediaURLs = "media_urls"

// fetched are the members whose text is an address that engines open by themselves.
var fetched = map[string]bool{"image_url": true, "video_url": true, "audio_url": true, "file_url": true}

// holders are the members that may be an object with such an address as its url.
var holders = map[string]bool{"image_url": true, "video_url": true, "audio_url": true, "source": true}

// Fetches says whether the request names anything, other than a data: URL, that an engine would fetch: an image by its
// address, a file, a tool server. Whoever may name an address lets the engine's network be reached through it. body is what
// the request was scanned from. What a tool was called with is text for the model, and is not looked at.
func (r *Request) Fetches(body []byte) bool {
	if !bytes.Contains(body, []byte("url")) && !bytes.Contains(body, []byte(`\u`)) {
		return false // no member of that name, nor one that is written with escapes
	}
	for _, name := range []string{"messages", "input", "system"} {
		if span, ok := r.Get(name); ok && remoteIn(body[span.Start:span.End], "", 0) {
			return true
		}
	}
	span, ok := r.Get("tools")
	return ok && remoteTool(body[span.Start:span.End])
}

// mediaDepth is deeper than any content part that an engine knows. Without a bound, a deep body would be read again and
// again, once a level.
const mediaDepth = 12

// remoteIn looks through a value; under is the name of the member that it is.
func remoteIn(value []byte, under string, depth int) (found bool) {
	if value[0] != '[' && value[0] != '{' || depth > mediaDepth {
		return false
	}
	Each(value, func(key, v []byte) bool {
		name := under // an element of a list stands for the list
		if key != nil {
			name = memberName(key)
			if name == "input" {
				return true
			}
			if v[0] == '"' && (fetched[name] || name == "url" && holders[under]) {
				found = remote(v)
				return !found
			}
		}
		found = remoteIn(v, name, depth+1)
		return !found
	})
	return found
}

// remoteTool looks for servers that the engine is to call.
func remoteTool(tools []byte) (found bool) {
	Each(tools, func(_, tool []byte) bool {
		if tool[0] == '{' {
			Each(tool, func(key, _ []byte) bool {
				found = found || memberName(key) == "server_url"
				return !found
			})
		}
		return !found
	})
	return found
}

func memberName(key []byte) string {
	var buf [32]byte
	return string(Unquote(buf[:0], key))
}

// remote says whether a JSON string is an address outside of the request. Its beginning tells.
func remote(raw []byte) bool {
	const data = "data:"
	var buf [128]byte
	s := strings.TrimSpace(string(Unquote(buf[:0], raw[:min(len(raw), len(buf))])))
	return s != "" && (len(s) < len(data) || !strings.EqualFold(s[:len(data)], data))
}
