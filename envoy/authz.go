package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// authorization asks the door process, by one of three filters that differ in what they wait for:
//
//   - bare: no POST. Asks for the admission at once, whatever body may follow.
//   - head: a POST whose body is large or of unknown size. Asks about path and key before the body is read.
//   - full: any POST. Reads the body, and asks for the admission.
//
// All of them fail closed.
func (d Door) authorization() []*hcmv3.HttpFilter {
	full := d.authz("full", CheckFull)
	full.WithRequestBody = &authzv3.BufferSettings{MaxRequestBytes: uint32(d.BodyLimit), PackAsBytes: true}
	return []*hcmv3.HttpFilter{
		unless(isPOST(), "spokegate.authz.bare", AuthzNamespace, d.authz("bare", CheckFull)),
		unless(either(not(isPOST()), bodyAtMost(d.HeadCheckAbove)), "spokegate.authz.head", AuthzNamespace, d.authz("head", CheckHead)),
		unless(not(isPOST()), AuthzNamespace, AuthzNamespace, full),
	}
}

func (d Door) authz(stats, check string) *authzv3.ExtAuthz {
	return &authzv3.ExtAuthz{
		StatPrefix:          stats,
		TransportApiVersion: corev3.ApiVersion_V3,
		Services: &authzv3.ExtAuthz_GrpcService{
			GrpcService: grpcService(doorCluster, d.CheckTimeout, &corev3.HeaderValue{Key: CheckKey, Value: check}),
		},
		StatusOnError:     &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
		ClearRouteCache:   true, // the route follows EndpointHeader, which the answer brings
		ValidateMutations: true,
	}
}
