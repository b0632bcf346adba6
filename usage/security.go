package usage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// Ways to tell Kafka who we are.
const (
	SASLPlain       = "plain" // the password itself: only over TLS
	SASLScramSHA256 = "scram-sha-256"
	SASLScramSHA512 = "scram-sha-512"
)

// KafkaSecurity says how connections to Kafka are protected, and who we are there. The zero value: not at all, and nobody.
//
// A password and a client certificate are read again for each connection, so that a renewed file is taken up.
type KafkaSecurity struct {
	// TLS encrypts, and wants a certificate of the broker for the host that is dialed.
	TLS bool
	// CA is a PEM file of the authorities that are believed; empty: the system's.
	CA string
	// Cert and Key are PEM files of a client certificate, where brokers want one.
	Cert, Key string
	// SASL is one of the ways above; empty: none.
	SASL string
	// User, and a file with the password and at most a line end behind it.
	User, PasswordFile string
}

// String says it without names and secrets.
func (s KafkaSecurity) String() string {
	switch {
	case !s.TLS && s.SASL == "":
		return "without TLS or SASL"
	case !s.TLS:
		return "without TLS, with SASL by " + s.SASL
	case s.SASL == "":
		return "over TLS without SASL"
	}
	return "over TLS with SASL by " + s.SASL
}

// Load reads the files and returns what kafka-go needs: nil where there is no TLS, or no SASL. An error says what does not
// fit together or cannot be read; never the password.
func (s KafkaSecurity) Load() (*tls.Config, sasl.Mechanism, error) {
	t, err := s.loadTLS()
	if err != nil {
		return nil, nil, err
	}
	m, err := s.loadSASL()
	return t, m, err
}

func (s KafkaSecurity) loadTLS() (*tls.Config, error) {
	switch {
	case !s.TLS && s.CA+s.Cert+s.Key != "":
		return nil, errors.New("a CA or a client certificate for Kafka is of no use without TLS")
	case !s.TLS:
		return nil, nil
	case (s.Cert == "") != (s.Key == ""):
		return nil, errors.New("a client certificate for Kafka needs both its file and its key's")
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, fmt.Errorf("CA for Kafka: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA for Kafka: %s holds no PEM certificate", s.CA)
		}
	}
	if s.Cert != "" {
		if _, err := s.certificate(nil); err != nil {
			return nil, err
		}
		t.GetClientCertificate = s.certificate
	}
	return t, nil
}

func (s KafkaSecurity) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	if err != nil {
		return nil, fmt.Errorf("client certificate for Kafka: %w", err)
	}
	return &c, nil
}

func (s KafkaSecurity) loadSASL() (sasl.Mechanism, error) {
	if s.SASL == "" {
		if s.User+s.PasswordFile != "" {
			return nil, errors.New("a user or a password for Kafka is of no use without SASL")
		}
		return nil, nil
	}
	switch s.SASL {
	case SASLPlain, SASLScramSHA256, SASLScramSHA512:
	default:
		return nil, fmt.Errorf("SASL for Kafka by %q: want %s, %s or %s", s.SASL, SASLPlain, SASLScramSHA256, SASLScramSHA512)
	}
	if s.SASL == SASLPlain && !s.TLS {
		return nil, errors.New("SASL for Kafka by plain sends the password as it is: use TLS, or SCRAM")
	}
	if s.User == "" || s.PasswordFile == "" {
		return nil, errors.New("SASL for Kafka needs a user and a file with the password")
	}
	_, err := s.mechanism()
	return login{s}, err
}

// mechanism is for one connection.
func (s KafkaSecurity) mechanism() (sasl.Mechanism, error) {
	b, err := os.ReadFile(s.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("password for Kafka: %w", err)
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n\x00") {
		return nil, fmt.Errorf("password for Kafka: one line is expected in %s", s.PasswordFile)
	}
	var m sasl.Mechanism = plain.Mechanism{Username: s.User, Password: password}
	switch s.SASL {
	case SASLScramSHA256:
		m, err = scram.Mechanism(scram.SHA256, s.User, password)
	case SASLScramSHA512:
		m, err = scram.Mechanism(scram.SHA512, s.User, password)
	}
	if err != nil {
		return nil, errors.New("the user or the password for Kafka has a character that SCRAM cannot say") // err may show it
	}
	return m, nil
}

// login is a mechanism that looks for the password when it needs it.
type login struct{ s KafkaSecurity }

// Name is what Kafka calls it.
func (l login) Name() string { return strings.ToUpper(l.s.SASL) }

// Start begins for one connection.
func (l login) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	m, err := l.s.mechanism()
	if err != nil {
		return nil, nil, err
	}
	return m.Start(ctx)
}
