package openai

// Request is what a door must know of a body. The body itself is never changed nor copied: spans are offsets into it.
type Request struct {
	Op           Op
	Model        string
	Stream       bool
	IncludeUsage bool       // stream_options.include_usage is true
	Members      []Member   // the top level, in order, whole
	Prompt       PromptSize // how much there is to read

	// Remote says that the request names something, other than a data: URL, that an engine would fetch: an image by its
	// address, a file, a tool server. Whoever may name an address lets the engine's network be reached through it. What a
	// tool was called with, the tools' schemas and the client's own metadata are not looked at; all else is, at any depth.
	Remote bool

	limit     int64 // of generated tokens for each choice
	limited   bool
	n, bestOf int64 // 0: not given
	prompts   int64 // in a list of prompts
}

// Member is one name and value of the body's top level.
type Member struct {
	Name  string // decoded
	Key   Span   // with its quotes
	Value Span   // without white space around it
}

// Span is body[Start:End].
type Span struct{ Start, End int }

// Get returns the value of a top-level member. Names are exact.
func (r *Request) Get(name string) (Span, bool) {
	for i := range r.Members {
		if r.Members[i].Name == name {
			return r.Members[i].Value, true
		}
	}
	return Span{}, false
}
