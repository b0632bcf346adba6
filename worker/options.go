package worker

import "github.com/spokegate/spokegate/openai"

// asked are the stream options that make an engine tell usage with every chunk.
const asked = `"include_usage":true,"continuous_usage_stats":true`

// countable says that the engine can be asked for running usage in this request's response.
func countable(q *openai.Request) bool {
	return q.Stream && (q.Op == openai.Chat || q.Op == openai.Completions)
}

// askRunningUsage puts our stream options into a body that Scan has accepted. All other bytes stay as they are: the order
// of keys, white space, and integers of any size.
func askRunningUsage(body []byte, q *openai.Request) edit {
	at, given := q.Get("stream_options")
	if !given {
		return setMember(q, "stream_options", []byte(`{`+asked+`}`))
	}
	options := []byte(`{` + asked)
	openai.Each(body[at.Start:at.End], func(key, value []byte) bool {
		switch string(openai.Unquote(nil, key)) {
		case "include_usage", "continuous_usage_stats":
		default:
			options = append(options, ',')
			options = append(append(append(options, key...), ':'), value...)
		}
		return true
	})
	return edit{at, append(options, '}')}
}
