package envoy

import (
	"errors"
	"fmt"
	"path/filepath"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity/mtls"
)

// The secrets of TLS towards workers: what Envoy shows, and who vouches for workers.
const (
	workerCertificateName = "fleet-certificate"
	workerAuthorityName   = "fleet-authorities"
)

// A worker whose certificate names it by a URI alone is marked, so that it gets the transport socket for that.
const (
	matchNamespace = "envoy.transport_socket_match"
	matchKey       = "certificate"
	matchURI       = "uri"
)

// encryptTo makes a cluster speak TLS 1.3 with its workers, and only with those whose certificate names them. By a DNS name, it
// is held against the very worker that was picked; by a URI, against the spoke: Envoy cannot tell URIs apart by host.
func (d Door) encryptTo(c *clusterv3.Cluster, static bool) {
	if !d.WorkerTLS.Given() {
		return
	}
	c.TransportSocket = d.workerSocket(static, nil)
	c.TransportSocketMatches = []*clusterv3.Cluster_TransportSocketMatch{{
		Name: matchURI, Match: matchMark(),
		TransportSocket: d.workerSocket(static, []*tlsv3.SubjectAltNameMatcher{{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: mtls.WorkerPrefix(d.Spoke)}},
		}}),
	}}
}

// workerSocket takes certificates with one of the names; none: with the worker's own.
func (d Door) workerSocket(static bool, names []*tlsv3.SubjectAltNameMatcher) *corev3.TransportSocket {
	secret := func(name string) *tlsv3.SdsSecretConfig {
		s := &tlsv3.SdsSecretConfig{Name: name}
		if !static {
			s.SdsConfig = overADS()
		}
		return s
	}
	return &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&tlsv3.UpstreamTlsContext{
			AutoHostSni: true, AutoSniSanValidation: len(names) == 0,
			MaxSessionKeys: u32(0), // a resumed session would not look at the certificate
			CommonTlsContext: &tlsv3.CommonTlsContext{
				AlpnProtocols: []string{"http/1.1"},
				TlsParams: &tlsv3.TlsParameters{
					TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3},
				TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{secret(workerCertificateName)},
				ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
					CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
						DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: names},
						ValidationContextSdsSecretConfig: secret(workerAuthorityName),
					}},
			},
		})},
	}
}

// workerSecrets name the files, as secrets does for the clients' side.
func (d Door) workerSecrets() []*tlsv3.Secret {
	if !d.WorkerTLS.Given() {
		return nil
	}
	f := d.WorkerTLS
	return []*tlsv3.Secret{
		{Name: workerCertificateName, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: file(f.Cert), PrivateKey: file(f.Key),
			WatchedDirectory: &corev3.WatchedDirectory{Path: filepath.Dir(f.Cert)}}}},
		{Name: workerAuthorityName, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: file(f.CA), WatchedDirectory: &corev3.WatchedDirectory{Path: filepath.Dir(f.CA)}}}},
	}
}

// named tells Envoy of a worker what its certificate is held against.
func (d Door) named(e *endpointv3.LbEndpoint, w fleet.Worker) {
	if !d.WorkerTLS.Given() {
		return
	}
	e.GetEndpoint().Hostname = w.Name
	if w.ByURI {
		e.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{matchNamespace: matchMark()}}
	}
}

func matchMark() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{matchKey: structpb.NewStringValue(matchURI)}}
}

// checkWorkerTLS says what is wrong with the files, before Envoy does in words of its own.
func (d Door) checkWorkerTLS() error {
	f := d.WorkerTLS
	if !f.Given() {
		return nil
	}
	if _, err := mtls.Open(f, nil); err != nil {
		return err
	}
	for _, path := range []string{f.Cert, f.Key, f.CA} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%s: the paths of certificates, keys and authorities must be absolute", path)
		}
	}
	if d.Spoke == "" {
		return errors.New("TLS towards workers needs the spoke's name, which is in their certificates")
	}
	return nil
}
