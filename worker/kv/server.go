package kv

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/identity/mtls"
)

// blocksServer implements worker.v1.Blocks. The zero token lets nobody in.
type blocksServer struct {
	workerv1.UnimplementedBlocksServer

	announcer *announcer
	token     string // empty: with certified, none is asked for
	certified bool   // callers have shown a certificate
	followers atomic.Int64
}

// NewServer is a gRPC server with the service Blocks, for those who know the spoke's join token. tls may be nil; where it
// verifies who calls, the token may be empty.
func (s *Source) NewServer(token string, tls credentials.TransportCredentials) *grpc.Server {
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		// A picker that is gone without a word is noticed, and so gives back what waits for it.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.MaxConcurrentStreams(64), grpc.MaxRecvMsgSize(64 << 10),
	}
	if tls != nil {
		options = append(options, grpc.Creds(tls))
	}
	server := grpc.NewServer(options...)
	s.server.token, s.server.certified = token, tls != nil
	workerv1.RegisterBlocksServer(server, &s.server)
	return server
}

// Follow tells one picker all, until either side ends it.
func (s *blocksServer) Follow(req *workerv1.FollowRequest, stream workerv1.Blocks_FollowServer) error {
	if !s.allowed(stream.Context()) {
		return status.Error(codes.Unauthenticated, "a valid join token is needed")
	}
	s.followers.Add(1)
	defer s.followers.Add(-1)
	var at place
	if req.Sequence > 0 {
		at.epoch, at.sequence = req.Epoch, req.Sequence
	}
	for {
		some, err := s.announcer.next(stream.Context(), &at)
		if err != nil {
			return status.FromContextError(err).Err()
		}
		for _, m := range some {
			if err := stream.SendMsg(m); err != nil {
				return err
			}
		}
	}
}

// allowed says whether the caller may follow: by the join token, or, where there is none, by the certificate that it has shown.
func (s *blocksServer) allowed(ctx context.Context) bool {
	return s.token == "" && s.certified || mtls.ShowsToken(ctx, s.token)
}
