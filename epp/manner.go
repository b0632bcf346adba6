package epp

import (
	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// manner is how the gateway hands over bodies, and wants them back. The zero value is the protocol's own.
type manner struct{ requests, responses handing }

// handing is one of these ways.
type handing uint8

const (
	// wholly: FULL_DUPLEX_STREAMED. All phases wait for us, and the body goes on as we give it back.
	wholly handing = iota
	// atOnce: BUFFERED, BUFFERED_PARTIAL. Headers must be answered before the body comes, in one message; they wait at the gateway
	// until that is answered, so the pick can go along with it. Of a partial body the pick sees what there is.
	atOnce
	// unseen: STREAMED, NONE. The headers go on as soon as they are answered, before there is a body: the pick goes by load alone.
	// Pieces of a body pass.
	unseen
	// strange: a way that came up later. To answer it as another would spoil the body.
	strange
)

// mannerOf reads what gateways say with the first message. One that says nothing is taken at the protocol's word.
func mannerOf(c *extprocv3.ProtocolConfiguration) manner {
	return manner{handingOf(c.GetRequestBodyMode()), handingOf(c.GetResponseBodyMode())}
}

func handingOf(m procv3.ProcessingMode_BodySendMode) handing {
	switch m {
	case procv3.ProcessingMode_BUFFERED, procv3.ProcessingMode_BUFFERED_PARTIAL:
		return atOnce
	case procv3.ProcessingMode_STREAMED, procv3.ProcessingMode_NONE:
		return unseen
	case procv3.ProcessingMode_FULL_DUPLEX_STREAMED:
		return wholly
	}
	return strange
}
