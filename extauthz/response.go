package extauthz

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
)

// response is an answer over gRPC.
func (a answer) response() *authv3.CheckResponse {
	if a.passes {
		return a.ok()
	}
	return a.denied()
}

func (a answer) ok() *authv3.CheckResponse {
	ok := &authv3.OkHttpResponse{}
	if list := a.upstream(); list != nil {
		if a.inHeader {
			list = append(list, openai.Header{Name: envoy.DestinationKey, Value: a.destination()})
		}
		ok.Headers, ok.ResponseHeadersToAdd = overwrite(list), overwrite(a.told(nil))
	}
	resp := &authv3.CheckResponse{
		Status:       &rpcstatus.Status{Code: int32(codes.OK)},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: ok},
	}
	if len(a.workers) > 0 {
		resp.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{
			envoy.DestinationKey: structpb.NewStringValue(a.destination()),
		}}
	}
	return resp
}

func (a answer) denied() *authv3.CheckResponse {
	status, body, headers := a.denial()
	return &authv3.CheckResponse{
		// Envoy ignores a denial whose status code is OK, and lets the request pass.
		Status: &rpcstatus.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(status)},
			Headers: overwrite(headers),
			Body:    string(body),
		}},
	}
}

// appends is shared by all headers, since nobody changes it.
var appends = wrapperspb.Bool(false)

// overwrite makes headers that overwrite, and never append. They say so in both fields: Envoy 1.37.0 obeyed only the older
// one.
func overwrite(list []openai.Header) []*corev3.HeaderValueOption {
	made := make([]struct {
		option corev3.HeaderValueOption
		value  corev3.HeaderValue
	}, len(list))
	out := make([]*corev3.HeaderValueOption, len(list))
	for i, h := range list {
		m := &made[i]
		m.value.Key, m.value.Value = h.Name, h.Value
		m.option.Header = &m.value
		//lint:ignore SA1019 an Envoy that reads only this field would append to what the client sent
		m.option.Append = appends
		m.option.AppendAction = corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		out[i] = &m.option
	}
	return out
}
