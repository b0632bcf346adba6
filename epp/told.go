package epp

import (
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/router"
)

// Headers that tell engines and the sidecars beside them what is theirs to do. Only a picker may say so: what a client sends of them
// is taken away.
const (
	rankHeader      = "x-data-parallel-rank"      // vLLM: the data-parallel rank that is to serve
	prefillerHeader = "x-prefiller-host-port"     // llm-d's sidecar: who is to compute the prompt
	sidecarHeader   = "x-data-parallel-host-port" // llm-d's sidecar: which of its engines is to serve. We name that one itself
)

var toldHeaders = [...]string{rankHeader, prefillerHeader, sidecarHeader}

// told are the headers that the workers named get beside their names. Behind our own door they have shims, each of which finds its
// own rank in a list. Elsewhere all get the same, a sidecar passes it on to the worker that computes the prompt, and engines refuse a
// rank that they have not: so all are named in one rank (router.Ask.OneRank).
func (st *stream) told(c *router.Choice) (set []openai.Header) {
	if st.server.Flights != nil {
		if ranks := c.RankList(); ranks != "" {
			set = append(set, openai.Header{Name: envoy.RanksHeader, Value: ranks})
		}
		return set
	}
	if c.RankList() != "" {
		set = append(set, openai.Header{Name: rankHeader, Value: strconv.Itoa(max(c.Ranks[0], 0))})
	}
	if c.Prefill != "" {
		set = append(set, openai.Header{Name: prefillerHeader, Value: c.Prefill})
	}
	return set
}

// splits says whether the prompt may be computed by another worker than the one that answers: behind our own door only its admission
// can say so to shims, and sidecars read no body that is compressed.
func (st *stream) splits(req *openai.Request, body []byte) bool {
	encoding := st.headers["content-encoding"]
	return st.server.Flights == nil && (encoding == "" || encoding == "identity") && req.Splittable(body)
}

// forged are the headers that the request must lose, but for those that are set.
func (st *stream) forged(set []openai.Header) (names []string) {
	for _, name := range toldHeaders {
		_, sent := st.headers[name]
		for _, h := range set {
			sent = sent && h.Name != name
		}
		if sent {
			names = append(names, name)
		}
	}
	return names
}

// unforged lets headers pass that are not picked for yet, without what only a picker may say: what a pick sets may come too late, or
// where it can set nothing.
func (st *stream) unforged() *extprocv3.ProcessingResponse {
	r := passRequestHeaders()
	if names := st.forged(nil); names != nil {
		r.GetRequestHeaders().Response = &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{RemoveHeaders: names}}
		for _, name := range names {
			delete(st.headers, name)
		}
	}
	return r
}

// overwriting sets headers.
func overwriting(set []openai.Header) (out []*corev3.HeaderValueOption) {
	for _, h := range set {
		out = append(out, rawHeader(h.Name, h.Value))
	}
	return out
}
