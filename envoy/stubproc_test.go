package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// metered is what the meter was told of one request.
type metered struct {
	response   map[string]string
	attributes map[string]string // which came with the response headers
	more       bool              // attributes or metadata came with something else
	body       []byte
	end        bool // end_of_stream was seen
}

type stubMeter struct {
	procv3.UnimplementedExternalProcessorServer
	ended *notes[metered]
}

func (s *stubMeter) Process(stream procv3.ExternalProcessor_ProcessServer) error {
	m, id := metered{}, ""
	for {
		r, err := stream.Recv()
		if err != nil {
			s.ended.add(id, m)
			return nil
		}
		got := map[string]string{}
		for k, v := range r.GetAttributes()[AttributesKey].GetFields() {
			got[k] = v.GetStringValue()
		}
		m.more = m.more || len(r.GetMetadataContext().GetFilterMetadata()) > 0
		switch v := r.Request.(type) {
		case *procv3.ProcessingRequest_ResponseHeaders:
			m.attributes, id = got, got[IDAttribute]
			m.response = flat(v.ResponseHeaders.Headers)
			m.end = m.end || v.ResponseHeaders.EndOfStream
			continue
		case *procv3.ProcessingRequest_ResponseBody:
			m.body = append(m.body, v.ResponseBody.Body...)
			m.end = m.end || v.ResponseBody.EndOfStream
		}
		m.more = m.more || len(got) > 0
	}
}

func flat(h *corev3.HeaderMap) map[string]string {
	out := map[string]string{}
	for _, v := range h.Headers {
		out[v.Key] = string(v.RawValue)
	}
	return out
}

// stubPicker answers in full duplex with what x-test-pick says.
type stubPicker struct {
	procv3.UnimplementedExternalProcessorServer
	asked *notes[string] // path
}

func (s *stubPicker) Process(stream procv3.ExternalProcessor_ProcessServer) error {
	var headers map[string]string
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil
		}
		switch v := r.Request.(type) {
		case *procv3.ProcessingRequest_RequestHeaders:
			headers = flat(v.RequestHeaders.Headers)
			s.asked.add(headers[RequestIDHeader], headers[":path"])
			if headers["x-test-shed"] != "" {
				stream.Send(shedResponse())
				return nil
			}
			if v.RequestHeaders.EndOfStream {
				stream.Send(picked(headers["x-test-pick"]))
			}
		case *procv3.ProcessingRequest_RequestBody:
			if headers != nil {
				stream.Send(picked(headers["x-test-pick"]))
				headers = nil
			}
			for _, c := range streamed(v.RequestBody) {
				stream.Send(c)
			}
		case *procv3.ProcessingRequest_RequestTrailers:
			stream.Send(&procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_RequestTrailers{RequestTrailers: &procv3.TrailersResponse{}}})
		case *procv3.ProcessingRequest_ResponseHeaders:
			stream.Send(&procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &procv3.HeadersResponse{}}})
		}
	}
}

func shedResponse() *procv3.ProcessingResponse {
	return &procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &procv3.ImmediateResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode_TooManyRequests}, Body: []byte(`{"error":{"code":"overloaded"}}`),
		Headers: &procv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{raw("content-type", "application/json")}},
	}}}
}

// picked names the workers and their ranks; it also tries what it may not, to write the context and to send the request elsewhere.
func picked(pick string) *procv3.ProcessingResponse {
	res := &procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_RequestHeaders{RequestHeaders: &procv3.HeadersResponse{
		Response: &procv3.CommonResponse{ClearRouteCache: true, HeaderMutation: &procv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
			raw(ContextHeader, "forged by the picker"), raw(EndpointHeader, "nowhere"), raw(DestinationKey, pick), raw(RanksHeader, "told by the picker"), raw(RanksHeader+"2", "x"),
		}}},
	}}}
	if pick != "" {
		inner, _ := structpb.NewStruct(map[string]any{DestinationKey: pick})
		res.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{LBNamespace: structpb.NewStructValue(inner)}}
	}
	return res
}

func raw(k, v string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: k, RawValue: []byte(v)}, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
}

func streamed(b *procv3.HttpBody) []*procv3.ProcessingResponse {
	const most = 62_000
	var out []*procv3.ProcessingResponse
	for rest := b.Body; ; {
		n := min(len(rest), most)
		last := n == len(rest)
		out = append(out, &procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_RequestBody{RequestBody: &procv3.BodyResponse{
			Response: &procv3.CommonResponse{BodyMutation: &procv3.BodyMutation{Mutation: &procv3.BodyMutation_StreamedResponse{
				StreamedResponse: &procv3.StreamedBodyResponse{Body: rest[:n], EndOfStream: last && b.EndOfStream},
			}}},
		}}})
		if rest = rest[n:]; last {
			return out
		}
	}
}
