package usage

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const kafkaPassword = "not-in-any-log-7f3a"

// secureProperties are those of the listeners that want to know who comes.
const secureProperties = `inter.broker.listener.name=PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location=DIR/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location=DIR/ca.pem
listener.name.mutual.ssl.client.auth=required
listener.name.secure.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_door="` + kafkaPassword + `";
listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
`

// writeCertificates writes an authority (ca.pem), what it vouches for, the broker (broker.pem: key and certificate) and a
// client (client.pem, client.key), and an authority that vouches for nobody (other.pem).
func writeCertificates(dir string) error {
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, name := range []string{"ca", "other", "broker", "client"} {
		c, key := *authority, caKey
		if name != "ca" {
			if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
				return err
			}
		}
		signer := key
		if name == "broker" || name == "client" {
			signer = caKey
			c.SerialNumber, c.Subject.CommonName, c.IsCA, c.KeyUsage = big.NewInt(2), name, false, x509.KeyUsageDigitalSignature
			c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		}
		der, err := x509.CreateCertificate(rand.Reader, &c, authority, &key.PublicKey, signer)
		if err != nil {
			return err
		}
		files[name+".pem"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		if der, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
			return err
		}
		files[name+".key"] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	files["broker.pem"] = append(files["broker.key"], files["broker.pem"]...)
	files["password"], files["wrong"] = []byte(kafkaPassword+"\n"), []byte("a-guess-5d1c\n")
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// sasl is how the broker of the tests is reached by its listener for TLS and SASL.
func (k *realKafka) sasl(mechanism string) KafkaSecurity {
	return KafkaSecurity{TLS: true, CA: k.dir + "/ca.pem", SASL: mechanism, User: "door", PasswordFile: k.dir + "/password"}
}

func TestKafkaOverTLS(t *testing.T) {
	k := startKafka(t)
	mutual := KafkaSecurity{TLS: true, CA: k.dir + "/ca.pem", Cert: k.dir + "/client.pem", Key: k.dir + "/client.key"}
	for name, c := range map[string]struct {
		addr     string
		security KafkaSecurity
	}{
		"plain":         {k.secure, k.sasl(SASLPlain)},
		"scram-sha-256": {k.secure, k.sasl(SASLScramSHA256)},
		"scram-sha-512": {k.secure, k.sasl(SASLScramSHA512)},
		"certificate":   {k.mutual, mutual},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			requestJournal(t, dir, 20, Options{})
			cfg := testConfig(t, k, dir)
			cfg.Prefix = strings.ReplaceAll(cfg.Prefix, "/", "-")
			cfg.Brokers, cfg.Security = []string{c.addr}, c.security
			f, _ := forward(t, cfg)
			drain(t, f)
			assertShipped(t, k, dir, cfg.Prefix)
		})
	}
}

// Who is not let in says why, without a secret, and keeps its records; when the file is right all are shipped.
func TestKafkaRefusesUs(t *testing.T) {
	k := startKafka(t)
	wrong := func(change func(*KafkaSecurity)) KafkaSecurity {
		s := k.sasl(SASLScramSHA512)
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		addr     string
		security KafkaSecurity
		says     string
	}{
		"password":       {k.secure, wrong(func(s *KafkaSecurity) { s.PasswordFile = k.dir + "/wrong" }), "SASL Authentication Failed"},
		"plain password": {k.secure, wrong(func(s *KafkaSecurity) { s.SASL, s.PasswordFile = SASLPlain, k.dir+"/wrong" }), "SASL Authentication Failed"},
		"user":           {k.secure, wrong(func(s *KafkaSecurity) { s.User = "nobody" }), "SASL Authentication Failed"},
		"authority":      {k.secure, wrong(func(s *KafkaSecurity) { s.CA = k.dir + "/other.pem" }), "unknown authority"},
		"no TLS":         {k.secure, KafkaSecurity{}, "without TLS or SASL"},
		"TLS to plain":   {k.addr, KafkaSecurity{TLS: true, CA: k.dir + "/ca.pem"}, "over TLS without SASL"},
		"no SASL":        {k.secure, KafkaSecurity{TLS: true, CA: k.dir + "/ca.pem"}, "over TLS without SASL"},
		"no certificate": {k.mutual, KafkaSecurity{TLS: true, CA: k.dir + "/ca.pem"}, ""}, // the alert that says so may be lost in the reset that follows it
	} {
		t.Run(name, func(t *testing.T) {
			dir, log := t.TempDir(), new(bytes.Buffer)
			s := requestJournal(t, dir, 20, Options{})
			cfg := testConfig(t, k, dir)
			cfg.Prefix = strings.ToLower(strings.ReplaceAll(cfg.Prefix, "/", "-")) // and so holds none of the words below
			cfg.Brokers, cfg.Security, cfg.Log = []string{c.addr}, c.security, slog.New(slog.NewTextHandler(log, nil))
			f, stop := forward(t, cfg)
			until(t, "an error", func() bool { return f.Status().Err != "" })
			st := f.Status()
			stop()
			t.Log(st.Err)
			if !strings.Contains(st.Err, c.says) {
				t.Errorf("it says %q, want %q", st.Err, c.says)
			}
			if told := st.Err + log.String(); strings.Contains(told, kafkaPassword) || strings.Contains(told, "a-guess") {
				t.Errorf("a password is told: %s", told)
			}
			if st.Shipped != 0 || st.Aside != 0 || s.Stats().Lost != 0 || s.Stats().Synced != 40 {
				t.Errorf("%+v, %+v", st, s.Stats())
			}
			cfg.Brokers, cfg.Security = []string{k.secure}, k.sasl(SASLScramSHA512)
			f, _ = forward(t, cfg)
			drain(t, f)
			assertShipped(t, k, dir, cfg.Prefix)
		})
	}
}

// A password that was changed on both sides is taken up without a restart.
func TestKafkaPasswordRenewed(t *testing.T) {
	k, dir := startKafka(t), t.TempDir()
	password := filepath.Join(dir, "password")
	set := func(s string) {
		if err := os.WriteFile(password, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("the old one")
	requestJournal(t, dir, 20, Options{})
	cfg := testConfig(t, k, dir)
	cfg.Brokers, cfg.Security = []string{k.secure}, k.sasl(SASLScramSHA256)
	cfg.Security.PasswordFile = password
	f, _ := forward(t, cfg)
	until(t, "an error", func() bool { return f.Status().Err != "" })
	set(kafkaPassword)
	drain(t, f)
	assertShipped(t, k, dir, cfg.Prefix)
}

func TestKafkaSecurityRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := writeCertificates(dir); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]string{"empty": "\n", "two lines": "a\nb\n", "odd": "a\u0007b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	password := dir + "/password"
	for i, c := range []struct {
		s    KafkaSecurity
		want string // empty: it is right
	}{
		{KafkaSecurity{}, ""},
		{KafkaSecurity{TLS: true}, ""},
		{KafkaSecurity{TLS: true, CA: dir + "/ca.pem", Cert: dir + "/client.pem", Key: dir + "/client.key"}, ""},
		{KafkaSecurity{SASL: SASLScramSHA256, User: "u", PasswordFile: password}, ""},
		{KafkaSecurity{TLS: true, SASL: SASLPlain, User: "u", PasswordFile: password}, ""},
		{KafkaSecurity{CA: dir + "/ca.pem"}, "no use without TLS"},
		{KafkaSecurity{Cert: dir + "/client.pem", Key: dir + "/client.key"}, "no use without TLS"},
		{KafkaSecurity{TLS: true, CA: dir + "/absent"}, "no such file"},
		{KafkaSecurity{TLS: true, CA: dir + "/ca.key"}, "no PEM certificate"},
		{KafkaSecurity{TLS: true, Cert: dir + "/client.pem"}, "its key"},
		{KafkaSecurity{TLS: true, Cert: dir + "/client.pem", Key: dir + "/ca.key"}, "does not match"},
		{KafkaSecurity{SASL: SASLPlain, User: "u", PasswordFile: password}, "use TLS"},
		{KafkaSecurity{TLS: true, SASL: "gssapi", User: "u", PasswordFile: password}, `"gssapi"`},
		{KafkaSecurity{TLS: true, SASL: SASLPlain, PasswordFile: password}, "needs a user"},
		{KafkaSecurity{TLS: true, SASL: SASLPlain, User: "u"}, "file with the password"},
		{KafkaSecurity{TLS: true, User: "u"}, "no use without SASL"},
		{KafkaSecurity{TLS: true, PasswordFile: password}, "no use without SASL"},
		{KafkaSecurity{TLS: true, SASL: SASLPlain, User: "u", PasswordFile: dir + "/absent"}, "no such file"},
		{KafkaSecurity{TLS: true, SASL: SASLPlain, User: "u", PasswordFile: dir + "/empty"}, "one line"},
		{KafkaSecurity{TLS: true, SASL: SASLPlain, User: "u", PasswordFile: dir + "/two lines"}, "one line"},
		{KafkaSecurity{TLS: true, SASL: SASLScramSHA512, User: "u", PasswordFile: dir + "/odd"}, "SCRAM cannot say"},
	} {
		_, err := NewForwarder(ForwarderConfig{Source: "door/main", Brokers: []string{"a:1"}, Security: c.s})
		if says := fmt.Sprint(err); (err == nil) != (c.want == "") || c.want != "" && !strings.Contains(says, c.want) || strings.Contains(says, kafkaPassword) {
			t.Errorf("%d: %+v: %v, want %q", i, c.s, err, c.want)
		}
	}
}
