package kv

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"
)

// TestWhoMayFollow: with certificates and without a token it is TLS that keeps strangers out; a token that is there is asked for.
func TestWhoMayFollow(t *testing.T) {
	with := func(authorization string) context.Context {
		return metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", authorization))
	}
	for name, c := range map[string]struct {
		server *blocksServer
		ctx    context.Context
		want   bool
	}{
		"neither":                    {&blocksServer{}, with("Bearer "), false},
		"a certificate":              {&blocksServer{certified: true}, context.Background(), true},
		"a certificate, no token":    {&blocksServer{certified: true, token: "t"}, context.Background(), false},
		"a certificate, and a token": {&blocksServer{certified: true, token: "t"}, with("Bearer t"), true},
		"a token":                    {&blocksServer{token: "t"}, with("bearer t"), true},
		"another":                    {&blocksServer{token: "t"}, with("Bearer u"), false},
	} {
		if got := c.server.allowed(c.ctx); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
