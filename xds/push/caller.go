package push

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/xds/delta"
)

// caller is the certificate of who calls; nil where there are none and the token was shown.
func (s *Server) caller(ctx context.Context) (*x509.Certificate, error) {
	if s.cfg.Certificates == nil {
		if !mtls.ShowsToken(ctx, s.cfg.Token) {
			return nil, status.Error(codes.Unauthenticated, "the hub's token is needed")
		}
		return nil, nil
	}
	caller := mtls.Caller(ctx)
	if caller == nil {
		return nil, status.Error(codes.Unauthenticated, "a certificate is needed")
	}
	return caller, nil
}

// share takes one of the streams that a certificate may have: a fifth of all, so that who takes them all locks out itself alone.
func (s *Server) share(caller *x509.Certificate) (leave func(), err error) {
	if caller == nil {
		return func() {}, nil
	}
	whose := sha256.Sum256(caller.Raw)
	s.gate.Lock()
	defer s.gate.Unlock()
	if most := max(1, s.cfg.Streams/5); s.shares[whose] >= most {
		return nil, s.refuse("full", "", status.Errorf(codes.ResourceExhausted, "there are %d streams by this certificate already", most))
	}
	if s.shares == nil {
		s.shares = map[[sha256.Size]byte]int{}
	}
	s.shares[whose]++
	return func() {
		s.gate.Lock()
		defer s.gate.Unlock()
		if s.shares[whose]--; s.shares[whose] == 0 {
			delete(s.shares, whose)
		}
	}, nil
}

// named holds who a caller says it is against its certificate.
func (s *Server) named(caller *x509.Certificate, node string) (spoke, door string, err error) {
	if spoke, door, err = delta.ParseNode(node); err != nil {
		return "", "", status.Error(codes.InvalidArgument, err.Error())
	}
	if caller == nil {
		return spoke, door, nil
	}
	if err := mtls.IsDoor(caller, spoke, door); err != nil {
		return "", "", status.Errorf(codes.PermissionDenied, "node %s: %v", node, err)
	}
	return spoke, door, nil
}

// expiry fires when a certificate expires: a connection must not outlive what it was let in by.
func expiry(caller *x509.Certificate, now time.Time) (<-chan time.Time, func()) {
	if caller == nil {
		return nil, func() {}
	}
	t := time.NewTimer(max(0, caller.NotAfter.Sub(now)))
	return t.C, func() { t.Stop() }
}

// refuse counts and logs who is not let in.
func (s *Server) refuse(why, from string, err error) error {
	s.metrics.refused.WithLabelValues(why).Inc()
	s.cfg.Log.Warn("a caller is refused", "from", from, "cause", cause(err))
	return err
}

func from(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

func cause(err error) string {
	if err == nil || errors.Is(err, io.EOF) {
		return "goodbye"
	}
	return status.Convert(err).Message()
}

// mostText is how much of a door's own words is kept, in bytes.
const mostText = 2048

// short keeps a stranger's text short and on one line.
func short(s string) string {
	if len(s) > mostText {
		s = s[:mostText]
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, s)
}
