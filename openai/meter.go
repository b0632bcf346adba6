package openai

// Usage counts tokens; nil is unknown. Prompt includes Cached, Completion includes Reasoning.
type Usage struct{ Prompt, Cached, Completion, Reasoning *int64 }

// Report is what a response said about itself.
type Report struct {
	Usage       Usage
	Events      int64    // events of a stream that carried generated content
	Terminal    bool     // [DONE], message_stop, response.completed, .incomplete or .failed; for JSON: the whole value was seen
	Failed      bool     // an error event or an error object, also when UpstreamCut
	UpstreamCut bool     // an error event with the reserved code upstream_cut
	CountedFrom string   // engine, events or none
	Anomalies   []string // facts to doubt: bad_usage, cached_above_prompt, …
}

// Meter reads a response piece by piece.
type Meter struct{}

// NewMeter returns a meter for a response to op; sse says that it is an event stream, else it is one JSON value.
func NewMeter(op Op, sse bool) *Meter { return &Meter{} }

// Write takes the next bytes of the response, cut anywhere. It never fails and keeps nothing of p.
func (m *Meter) Write(p []byte) (int, error) { return len(p), nil }

// Close says that no more bytes come, at the end or after a cut, and returns the report. It may be called again.
func (m *Meter) Close() Report { return Report{CountedFrom: "none"} }
