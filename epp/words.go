package epp

import (
	"iter"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
)

// maxChunk is how much of a body one answer may carry: Envoy's gRPC frames stay under 64 KiB with what surrounds it.
const maxChunk = 62_000

// subsetKey holds the protocol's subset hint, in envoy.SubsetNamespace.
const subsetKey = envoy.DestinationKey + "-subset"

// subset reads which endpoints the gateway permits: nil, all; not nil and empty, none. It is a list or one
// comma-separated string.
func subset(md *corev3.Metadata) []string {
	v, ok := md.GetFilterMetadata()[envoy.SubsetNamespace].GetFields()[subsetKey]
	if !ok {
		return nil
	}
	out := []string{}
	add := func(s string) {
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	add(v.GetStringValue())
	for _, e := range v.GetListValue().GetValues() {
		add(e.GetStringValue())
	}
	return out
}

// chosen are the workers picked, best first. On whatever phase they are told, they are put where the protocol wants them: in a
// header and in dynamic metadata, the same words.
type chosen struct {
	addrs   []string
	retries bool // Envoy is to be told to try no more workers than are named
	told    []openai.Header
	forged  []string // headers that the request must lose
}

func (c chosen) list() string { return strings.Join(c.addrs, ",") }

func (c chosen) onHeaders() *extprocv3.ProcessingResponse {
	return c.named(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: c.mutation()}}})
}

func (c chosen) onBody() *extprocv3.ProcessingResponse {
	return c.named(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: c.mutation()}}})
}

// onTrailers can name the choice in metadata alone.
func (c chosen) onTrailers() *extprocv3.ProcessingResponse { return c.named(passRequestTrailers()) }

func (c chosen) mutation() *extprocv3.CommonResponse {
	set := append([]*corev3.HeaderValueOption{rawHeader(envoy.DestinationKey, c.list())}, overwriting(c.told)...)
	if c.retries {
		set = append(set, rawHeader(envoy.MaxRetriesHeader, strconv.Itoa(len(c.addrs)-1)))
	}
	return &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: set, RemoveHeaders: c.forged}}
}

func (c chosen) named(r *extprocv3.ProcessingResponse) *extprocv3.ProcessingResponse {
	r.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{
		envoy.LBNamespace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			envoy.DestinationKey: structpb.NewStringValue(c.list()),
		}}),
	}}
	return r
}

// requestChunks gives the body back. Its last chunk ends the stream where last says so, be it empty.
func requestChunks(body []byte, last bool) []*extprocv3.ProcessingResponse {
	var out []*extprocv3.ProcessingResponse
	for chunk, end := range chunks(body, last) {
		out = append(out, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
			RequestBody: &extprocv3.BodyResponse{Response: streamed(chunk, end)}}})
	}
	return out
}

// responseChunks gives a piece of a response back as it came, in as many as it takes.
func responseChunks(body []byte, last bool) []*extprocv3.ProcessingResponse {
	var out []*extprocv3.ProcessingResponse
	for chunk, end := range chunks(body, last) {
		out = append(out, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
			ResponseBody: &extprocv3.BodyResponse{Response: streamed(chunk, end)}}})
	}
	return out
}

// chunks cuts a body; the last one ends the stream where last says so, be it empty.
func chunks(body []byte, last bool) iter.Seq2[[]byte, bool] {
	return func(yield func([]byte, bool) bool) {
		for first := true; len(body) > 0 || last && first; first = false {
			n := min(len(body), maxChunk)
			chunk := body[:n]
			body = body[n:]
			if !yield(chunk, last && len(body) == 0) {
				return
			}
		}
	}
}

func streamed(chunk []byte, end bool) *extprocv3.CommonResponse {
	return &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
		StreamedResponse: &extprocv3.StreamedBodyResponse{Body: chunk, EndOfStream: end}}}}
}

// Answers that change nothing.

func passRequestHeaders() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}}
}

func passRequestBody() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}}
}

func passRequestTrailers() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}}
}

func passResponseHeaders() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}}
}

func passResponseBody() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{}}}
}

func passResponseTrailers() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}
}

func one(r *extprocv3.ProcessingResponse) []*extprocv3.ProcessingResponse {
	return []*extprocv3.ProcessingResponse{r}
}

// immediate ends the request here.
func immediate(e *openai.Error, op openai.Op) *extprocv3.ProcessingResponse {
	m := &extprocv3.HeaderMutation{}
	for _, h := range e.Headers() {
		m.SetHeaders = append(m.SetHeaders, rawHeader(h.Name, h.Value))
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(e.Status)}, Headers: m, Body: e.Body(op), Details: "picker_" + e.Code,
		}}}
}

// rawHeader overwrites; ext_proc reads raw_value only.
func rawHeader(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
