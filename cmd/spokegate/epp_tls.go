package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"log/slog"
	"math/big"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// servedTLS is the certificate that gateways see.
type servedTLS struct {
	cert, key  string
	selfSigned bool
}

func (t *servedTLS) register(f *flag.FlagSet) {
	f.StringVar(&t.cert, "tls-cert", "", "`file` with the PEM certificate chain for gateways; empty: no TLS. A renewed one is taken up")
	f.StringVar(&t.key, "tls-key", "", "`file` with its key")
	f.BoolVar(&t.selfSigned, "tls-self-signed", false, "TLS with a certificate that it makes at its start, for gateways that do not ask who it is")
}

func (t *servedTLS) complete() error {
	switch {
	case (t.cert == "") != (t.key == ""):
		return errors.New("-tls-cert and -tls-key go together")
	case t.cert != "" && t.selfSigned:
		return errors.New("-tls-self-signed goes without -tls-cert")
	}
	return nil
}

// options are those of a server that shows the certificate, if there is any.
func (t *servedTLS) options(log *slog.Logger) ([]grpc.ServerOption, error) {
	var get func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	switch {
	case t.selfSigned:
		c, err := selfSigned(time.Now())
		if err != nil {
			return nil, err
		}
		get = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c, nil }
	case t.cert != "":
		k := &keptPair{servedTLS: *t, log: log}
		if err := k.read(); err != nil {
			return nil, err
		}
		get = k.get
	default:
		return nil, nil
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(&tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12}))}, nil
}

// keptPair reads the files again when they are others. What cannot be read changes nothing.
type keptPair struct {
	servedTLS
	log *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	of     [2]os.FileInfo
	looked time.Time
}

// pairPoll is how often the files are looked at, at most.
const pairPoll = time.Second

func (k *keptPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.looked) >= pairPoll {
		if err := k.read(); err != nil {
			k.log.Warn("the certificate for gateways stays as it was", "error", err)
		}
	}
	return k.pair, nil
}

func (k *keptPair) read() error {
	k.looked = time.Now()
	var now [2]os.FileInfo
	same := true
	for i, path := range []string{k.cert, k.key} {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		now[i] = info
		same = same && k.of[i] != nil && os.SameFile(info, k.of[i]) && info.ModTime().Equal(k.of[i].ModTime()) && info.Size() == k.of[i].Size()
	}
	if same {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(k.cert, k.key)
	if err != nil {
		return err
	}
	k.pair, k.of = &pair, now
	return nil
}

// selfSigned makes a certificate that proves nothing but hides what is said. It outlives any process.
func selfSigned(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"Spokegate"}, CommonName: "spokegate-epp"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
