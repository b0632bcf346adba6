package envoy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// certificateName is the secret that holds the clients' side of TLS.
const certificateName = "door-certificate"

// transport is TLS towards clients, if the door has a certificate. Static configuration names the secret, else it comes over
// ADS, so that Envoy takes up a renewed one without closing a connection.
func (d Door) transport(static bool) *corev3.TransportSocket {
	if d.TLSCert == "" {
		return nil
	}
	secret := &tlsv3.SdsSecretConfig{Name: certificateName}
	if !static {
		secret.SdsConfig = overADS()
	}
	return &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&tlsv3.DownstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{
				AlpnProtocols:                  []string{"h2", "http/1.1"},
				TlsParams:                      &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2},
				TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{secret},
			},
		})},
	}
}

// secrets names the files; Envoy reads them itself, and again when one is renamed into the certificate's folder.
func (d Door) secrets() []*tlsv3.Secret {
	if d.TLSCert == "" {
		return nil
	}
	return []*tlsv3.Secret{{Name: certificateName, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: file(d.TLSCert), PrivateKey: file(d.TLSKey),
		WatchedDirectory: &corev3.WatchedDirectory{Path: filepath.Dir(d.TLSCert)},
	}}}}
}

func file(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}

// checkTLS says what is wrong with the certificate, before Envoy does in words of its own.
func (d Door) checkTLS() error {
	switch {
	case d.TLSCert == "" && d.TLSKey == "":
		return nil
	case d.TLSCert == "" || d.TLSKey == "":
		return errors.New("TLS needs both a certificate and its key")
	case !filepath.IsAbs(d.TLSCert) || !filepath.IsAbs(d.TLSKey):
		return errors.New("the paths of certificate and key must be absolute")
	}
	if _, err := tls.LoadX509KeyPair(d.TLSCert, d.TLSKey); err != nil {
		return fmt.Errorf("certificate %s, key %s: %w", d.TLSCert, d.TLSKey, err)
	}
	return nil
}
