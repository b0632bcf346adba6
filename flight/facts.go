package flight

import (
	"time"

	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
)

// Admission is the door's yes to one request.
type Admission struct {
	ID                         string            // Envoy's request id, one for each request ever
	Key, Team, Model, Endpoint string            // names in the policy, never secrets
	AskedModel                 string            // the alias that was asked for; empty: Model itself
	Labels                     map[string]string // of the key; shared with the policy, so never changed
	Revision                   uint64
	Op                         openai.Op
	Stream                     bool
	ClientRequestID            string // what the client called it; cut to 128 bytes
	RequestBytes               int64  // of the body; a request without one is not admitted
	// PromptEstimate is how many tokens the prompt is believed to have, for a request of which nobody reports it.
	PromptEstimate int64
	// CachedWeight is what a prompt token counts against limits that the engine had in its cache, from 0 to 1.
	CachedWeight float64
	// Price of the model in the revision that admitted it; nil: nobody knows.
	Price *policy.Price
	At    time.Time
}

// Facts are what is known of a flight's end. Parts come by themselves and are put together; of each the first one counts.
type Facts struct {
	Metered *Metered
	Logged  *Logged
	Lost    string // why no access log will come, such as "envoy_gone"; becomes an anomaly, so: one of a few words
}

func (f Facts) empty() bool { return f.Metered == nil && f.Logged == nil && f.Lost == "" }

// merge adds what is not known yet.
func (f *Facts) merge(g Facts) {
	if f.Metered == nil {
		f.Metered = g.Metered
	}
	if f.Logged == nil {
		f.Logged = g.Logged
	}
	if f.Lost == "" {
		f.Lost = g.Lost
	}
}

// conclusive: the request is over. A meter whose stream broke off before the end of the response says only that it will see
// no more of it: a meter that Envoy has cut off, because it hung, breaks off while the request runs on.
func (f *Facts) conclusive() bool {
	return f.Logged != nil || f.Lost != "" || f.Metered != nil && (f.Metered.SawEnd || f.Metered.Report.Terminal)
}

// settled: nothing that could still come would add to it.
func (f *Facts) settled() bool {
	return f.Metered != nil && (f.Logged != nil || f.Lost != "") || f.Logged != nil && f.Logged.unanswered()
}

// Metered is what the meter saw pass, or in its place what a shim had noted of what passed.
type Metered struct {
	Report        openai.Report
	Status        int   // 0: no response headers came
	ResponseBytes int64 // of the body
	SawEnd        bool  // the response came to its proper end
	Refused       bool  // it is the shim's own refusal (draining, no valid context), not an engine's answer
	At            time.Time
}

// Logged is what Envoy's access log says, in words of ours.
type Logged struct {
	Status      int    // 0: none was sent to the client
	ClientCut   bool   // the client closed the connection (DC) or reset the stream (DR)
	UpstreamCut bool   // the worker did (UC, UR, UPE)
	NoUpstream  bool   // none took it (UH, UF, NR, NC, UO, overload)
	Timeout     bool   // Envoy ended it (UT, SI, DT)
	Details     string // Envoy's response code details
	Served      string // host that served, or was tried last; empty: none
	Attempts    int    // 0: unknown
	// Body bytes.
	RequestBytes, ResponseBytes int64
	// FirstByte towards the client; zero: none, or unknown.
	FirstByte, At time.Time
}

// unanswered: no response of a worker began, so there was nothing to meter.
func (l *Logged) unanswered() bool { return l.Status == 0 || l.Served == "" }
