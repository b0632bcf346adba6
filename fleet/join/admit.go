package join

import (
	"context"
	"crypto/x509"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity/mtls"
)

// admit says why a caller may not join, or whose certificate it has, if that is what it needs.
func (s *Server) admit(ctx context.Context) (*x509.Certificate, error) {
	switch caller := mtls.Caller(ctx); {
	case s.Token == "" && !s.Certified, s.Token != "" && !mtls.ShowsToken(ctx, s.Token):
		return nil, status.Error(codes.Unauthenticated, "a valid join token is needed")
	case !s.Certified:
		return nil, nil
	case caller == nil:
		return nil, status.Error(codes.Unauthenticated, "a certificate is needed")
	default:
		return caller, nil
	}
}

// named holds a worker's name against its certificate.
func (s *Server) named(caller *x509.Certificate, w *fleet.Worker) error {
	if !s.Certified {
		return nil
	}
	if err := mtls.IsWorker(caller, s.Spoke, w.Name); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	w.ByURI = !slices.Contains(caller.DNSNames, w.Name)
	return nil
}
