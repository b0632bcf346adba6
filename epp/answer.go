package epp

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
)

// What a stream learns from the response to its request is for the booking: who serves it, when it has its prompt computed, and
// what the engine found in its cache. Where a flight has the booking, nothing is learned here.

// served moves the booking to the worker that took the request, where a retry changed it.
func (st *stream) served(md *corev3.Metadata) {
	if st.booking == nil {
		return
	}
	if addr := md.GetFilterMetadata()[envoy.LBNamespace].GetFields()[envoy.ServedKey].GetStringValue(); addr != "" {
		st.booking.Serving(addr)
	}
}

func (st *stream) responseHeaders(h *extprocv3.HttpHeaders) {
	if st.booking == nil {
		return
	}
	var status, kind, encoding string
	for _, v := range h.GetHeaders().GetHeaders() {
		switch v.GetKey() {
		case ":status":
			status = envoy.HeaderValue(v)
		case "content-type":
			kind = envoy.HeaderValue(v)
		case "content-encoding":
			encoding = envoy.HeaderValue(v)
		}
	}
	if strings.HasPrefix(status, "2") && (encoding == "" || encoding == "identity") {
		kind, _, _ = strings.Cut(kind, ";")
		st.meter = openai.NewMeter(st.op(), strings.TrimSpace(kind) == openai.EventStream)
	}
	if h.GetEndOfStream() {
		st.answered(true)
	}
}

func (st *stream) responseBody(b *extprocv3.HttpBody) {
	if st.booking == nil {
		return
	}
	if len(b.GetBody()) > 0 && !st.begun {
		st.begun = true
		st.booking.FirstByte()
	}
	if st.meter != nil {
		_, _ = st.meter.Write(b.GetBody()) // never fails
	}
	if b.GetEndOfStream() {
		st.answered(true)
	}
}

// answered ends the booking. What a whole answer says of the engine's cache is held against what was believed.
func (st *stream) answered(whole bool) {
	if st.booking == nil {
		return
	}
	if m := st.meter; m != nil && whole {
		if r := m.Close(); r.Terminal && !r.Failed {
			st.booking.Served(r.Usage.Cached)
		}
	}
	st.booking.Release()
	st.booking = nil
}
