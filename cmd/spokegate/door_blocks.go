package main

import (
	"context"
	"crypto/x509"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity/mtls"
)

// maxAnnouncement bounds one message of a worker's, in bytes.
const maxAnnouncement = 16 << 20

// blocks is how the picker follows what workers hold, with the credentials that they have joined by; nil: it does not.
func (j joining) blocks() *epp.Blocks {
	if j.flags.guess {
		return nil
	}
	return &epp.Blocks{Seed: j.seed.current, Log: j.log, Dial: func(w fleet.Worker) (*grpc.ClientConn, error) {
		creds := insecure.NewCredentials()
		if j.flags.certified() {
			creds = credentials.NewTLS(j.certificates.Peer(func(c *x509.Certificate) error { return mtls.IsWorker(c, j.spoke, w.Name) }))
		}
		return grpc.NewClient("passthrough:///"+w.BlocksAddr, grpc.WithTransportCredentials(creds), grpc.WithNoProxy(),
			grpc.WithPerRPCCredentials(joinToken(j.token)), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnnouncement)))
	}}
}

// joinToken is shown with each call; empty: there is none.
type joinToken string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t joinToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if t == "" {
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

// RequireTransportSecurity is for -fleet-plain and -fleet-listen to decide.
func (joinToken) RequireTransportSecurity() bool { return false }
