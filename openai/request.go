package openai

// Request is what a door must know of a body. The body itself is never changed nor copied: spans are offsets into it.
type Request struct {
	Op           Op
	Model        string
	Stream       bool
	IncludeUsage bool     // stream_options.include_usage is true
	Members      []Member // the top level, in order, whole
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
