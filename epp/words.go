package epp

import (
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

// named puts the choice where the protocol wants it: in a header and in dynamic metadata, the same words. Envoy is to try
// no more workers than are named.
func named(addrs []string) *extprocv3.ProcessingResponse {
	list := strings.Join(addrs, ",")
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{
				ClearRouteCache: true,
				HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
					rawHeader(envoy.DestinationKey, list), rawHeader(envoy.MaxRetriesHeader, strconv.Itoa(len(addrs)-1))}},
			},
		}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			envoy.LBNamespace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				envoy.DestinationKey: structpb.NewStringValue(list),
			}}),
		}},
	}
}

// requestChunks gives the body back. Its last chunk ends the stream where last says so, be it empty.
func requestChunks(body []byte, last bool) []*extprocv3.ProcessingResponse {
	var out []*extprocv3.ProcessingResponse
	for len(body) > 0 || last && len(out) == 0 {
		n := min(len(body), maxChunk)
		chunk := body[:n]
		body = body[n:]
		out = append(out, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
			RequestBody: &extprocv3.BodyResponse{Response: streamed(chunk, last && len(body) == 0)}}})
	}
	return out
}

func responseChunk(body []byte, end bool) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
		ResponseBody: &extprocv3.BodyResponse{Response: streamed(body, end)}}}
}

func streamed(chunk []byte, end bool) *extprocv3.CommonResponse {
	return &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
		StreamedResponse: &extprocv3.StreamedBodyResponse{Body: chunk, EndOfStream: end}}}}
}

// immediate ends the request here.
func immediate(e *openai.Error, op openai.Op) []*extprocv3.ProcessingResponse {
	m := &extprocv3.HeaderMutation{}
	for _, h := range e.Headers() {
		m.SetHeaders = append(m.SetHeaders, rawHeader(h.Name, h.Value))
	}
	return []*extprocv3.ProcessingResponse{{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(e.Status)}, Headers: m, Body: e.Body(op), Details: "picker_" + e.Code,
		}}}}
}

// rawHeader overwrites; ext_proc reads raw_value only.
func rawHeader(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
