package join

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity/mtls"
)

// admit says why a caller may not join, or whose certificate it has, if that is what it needs.
func (s *Server) admit(ctx context.Context) (*x509.Certificate, error) {
	switch caller := mtls.Caller(ctx); {
	case s.Token == "" && !s.Certified, s.Token != "" && !s.hasToken(ctx):
		return nil, status.Error(codes.Unauthenticated, "a valid join token is needed")
	case !s.Certified:
		return nil, nil
	case caller == nil:
		return nil, status.Error(codes.Unauthenticated, "a certificate is needed")
	default:
		return caller, nil
	}
}

// hasToken compares digests, so that neither the token's bytes nor its length show in the time that it takes.
func (s *Server) hasToken(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && strings.EqualFold(scheme, "bearer")
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
