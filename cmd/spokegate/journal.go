package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
	"github.com/spokegate/spokegate/usage"
)

// journal is a role's spool and, where there is a Kafka, what ships it there.
type journal struct {
	spool   *usage.Spool
	forward *usage.Forwarder // nil: records stay on this disk
	stop    func()           // ends what ships, and waits for it
}

// kafkaFlags say where a role's records go, and how.
type kafkaFlags struct {
	brokers  string
	security usage.KafkaSecurity
}

func (k *kafkaFlags) register(f *flag.FlagSet) {
	f.StringVar(&k.brokers, "kafka", os.Getenv("SPOKEGATE_KAFKA"), "`host:port` of Kafka's brokers, comma-separated, that records are shipped to; empty: they stay on this disk ($SPOKEGATE_KAFKA)")
	f.BoolVar(&k.security.TLS, "kafka-tls", false, "TLS to Kafka's brokers")
	f.StringVar(&k.security.CA, "kafka-ca", "", "PEM `file` of the authorities that vouch for the brokers; empty: the system's")
	f.StringVar(&k.security.Cert, "kafka-cert", "", "PEM `file` with a client certificate, where the brokers want one")
	f.StringVar(&k.security.Key, "kafka-key", "", "PEM `file` with its key")
	f.StringVar(&k.security.SASL, "kafka-sasl", "", "how Kafka is told who we are: plain (over TLS alone), scram-sha-256 or scram-sha-512; empty: it is not")
	f.StringVar(&k.security.User, "kafka-user", "", "`name` of the user at Kafka")
	f.StringVar(&k.security.PasswordFile, "kafka-password-file", "", "`file` with the user's password")
}

// complete refuses what does not fit.
func (k *kafkaFlags) complete() error {
	if k.brokers == "" && k.security != (usage.KafkaSecurity{}) {
		return errors.New("-kafka-tls, -kafka-sasl and what belongs to them are of no use without -kafka")
	}
	if k.brokers != "" {
		for b := range strings.SplitSeq(k.brokers, ",") {
			host, port, err := net.SplitHostPort(b)
			if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
				return fmt.Errorf("-kafka: %q is no broker; want HOST:PORT, comma-separated, like localhost:9092", b)
			}
		}
	}
	if _, _, err := k.security.Load(); err != nil {
		return fmt.Errorf("-kafka-…: %w", err)
	}
	return nil
}

// args say the same to another process.
func (k *kafkaFlags) args() []string {
	s := k.security
	return []string{"-kafka", k.brokers, "-kafka-tls=" + strconv.FormatBool(s.TLS), "-kafka-ca", s.CA, "-kafka-cert", s.Cert,
		"-kafka-key", s.Key, "-kafka-sasl", s.SASL, "-kafka-user", s.User, "-kafka-password-file", s.PasswordFile}
}

func openJournal(dir, source string, kafka kafkaFlags, reg *prometheus.Registry, log *slog.Logger) (*journal, error) {
	return startJournal(kafka, usage.Options{Registerer: reg, Log: log}, usage.ForwarderConfig{Dir: spoolDir(dir), Source: source, Registerer: reg, Log: log})
}

// spoolDir is where a role's journals are.
func spoolDir(dir string) string { return filepath.Join(dir, "spool") }

// startJournal opens the journal that ship names, and begins to ship it where there is a Kafka.
func startJournal(kafka kafkaFlags, keep usage.Options, ship usage.ForwarderConfig) (*journal, error) {
	keep.Checkpoint = time.Minute
	spool, err := usage.Open(ship.Dir, ship.Source, keep)
	if err != nil {
		return nil, err
	}
	j := &journal{spool: spool}
	if kafka.brokers == "" {
		return j, nil
	}
	ship.Brokers, ship.Security = strings.Split(kafka.brokers, ","), kafka.security
	j.forward, err = usage.NewForwarder(ship)
	if err != nil {
		return nil, err
	}
	// It outlives the role's other parts, so that what they journal at their end is shipped too.
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { j.forward.Run(ctx) })
	j.stop = func() { cancel(); running.Wait() }
	return j, nil
}

// close writes what was appended and ships what it can until ctx is done; the rest is shipped after the next start.
func (j *journal) close(ctx context.Context) error {
	err := j.spool.Close(ctx)
	if j.forward == nil {
		return err
	}
	_ = j.forward.Drain(ctx)
	j.stop()
	return err
}

// note says what a reader of /readyz should know; responses go on all the same.
func (j *journal) note(r *report) {
	if s := j.spool.Stats(); s.Lost > 0 || s.Err != "" {
		r.note("spool: %d records lost: %s", s.Lost, s.Err)
	}
	if j.forward == nil {
		return
	}
	s := j.forward.Status()
	if s.Err != "" {
		r.note("kafka: not shipping since %s, %d bytes wait on disk: %s", s.Since.Format(time.RFC3339), s.LagBytes, s.Err)
	} else {
		r.note("kafka: %d records shipped, %d bytes wait", s.Shipped, s.LagBytes)
	}
}

// tell is what a hub is told of the journal.
func (j *journal) tell(name string) *hubv1.Spool {
	s := j.spool.Stats()
	out := &hubv1.Spool{Name: name, Lost: s.Lost, Problem: s.Err}
	if j.forward != nil {
		f := j.forward.Status()
		out.Bytes, out.Problem = uint64(max(0, f.LagBytes)), cmp.Or(s.Err, f.Err)
	}
	return out
}
