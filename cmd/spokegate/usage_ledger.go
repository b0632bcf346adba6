package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/spokegate/spokegate/usage/ledger"
)

// ledgerFlags of `usage ledger`.
type ledgerFlags struct {
	database  string
	kafka     kafkaFlags
	spools    string
	bill      string
	keep      time.Duration
	listen    string
	tokenFile string
	level     slog.Level
}

func (l *ledgerFlags) register(f *flag.FlagSet) {
	f.StringVar(&l.database, "db", cmp.Or(os.Getenv("SPOKEGATE_LEDGER_DB"), "ledger.db"), "the database: a `file` of SQLite, which is made where it is missing, or postgres://USER@HOST/NAME ($SPOKEGATE_LEDGER_DB)")
	l.kafka.register(f)
	f.StringVar(&l.spools, "spools", "", "read the spools in these `folders` of roles instead of Kafka, comma-separated, such as .spokegate")
	f.StringVar(&l.bill, "bill", string(ledger.Generated), "whose count is billed where an answer was cut: generated (the worker's) or delivered (the door's). A database keeps to one")
	f.DurationVar(&l.keep, "keep", 35*24*time.Hour, "for how long an admission is known after its last record, so that its records count once; what comes later is refused. Totals are kept for ever")
	f.StringVar(&l.listen, "listen", "127.0.0.1:9600", "where sums, the page, /metrics, /healthz and /readyz are served")
	f.StringVar(&l.tokenFile, "token-file", "", "`file` with the bearer token that is wanted of who asks for numbers; needed where -listen is not this machine alone")
	levelFlag(f, &l.level)
}

// check also makes sense of the environment: spools on the command line are meant, whatever it says of Kafka.
func (l *ledgerFlags) check(f *flag.FlagSet) error {
	named := map[string]bool{}
	f.Visit(func(f *flag.Flag) { named[f.Name] = true })
	switch {
	case l.spools != "" && named["kafka"]:
		return errors.New("-kafka and -spools: records come from one or the other")
	case l.spools != "":
		l.kafka.brokers = ""
	case l.kafka.brokers == "":
		return errors.New("say where records come from: -kafka HOST:PORT, or -spools FOLDER, such as -spools .spokegate")
	}
	if !onThisMachine(l.listen) && l.tokenFile == "" {
		return fmt.Errorf("-listen %s is reached from other machines: want a -token-file", l.listen)
	}
	if l.tokenFile != "" {
		if _, err := ledger.ReadToken(l.tokenFile); err != nil {
			return fmt.Errorf("-token-file: %w", err)
		}
	}
	return l.kafka.complete()
}

// feed opens what records come from.
func (l *ledgerFlags) feed(log *slog.Logger) (ledger.Feed, error) {
	if l.spools == "" {
		return ledger.NewKafka(ledger.KafkaConfig{Brokers: listed(l.kafka.brokers), Security: l.kafka.security, Log: log})
	}
	var spools []string
	for _, dir := range listed(l.spools) {
		spool, err := spoolOf(dir)
		if err != nil {
			return nil, err
		}
		spools = append(spools, spool)
	}
	return ledger.OpenSpools(spools...)
}

// ledgerUsage keeps totals of the usage records in a database, and tells them.
func ledgerUsage(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("usage ledger", flag.ContinueOnError)
	var flags ledgerFlags
	flags.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if err := flags.check(f); err != nil {
		return badUsage(f, err)
	}
	log := newLog(os.Stderr, flags.level, "ledger", "main")
	feed, err := flags.feed(log)
	if err != nil {
		return err
	}
	reg := newRegistry()
	l, err := ledger.Open(ctx, ledger.Config{Database: flags.database, Feed: feed, Bill: ledger.Bill(flags.bill), Keep: flags.keep, Registerer: reg, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	log.Info("the ledger begins", "database", l.Where(), "bill", flags.bill)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.Run(ctx) })
	g.Go(func() error { return flags.serve(ctx, l, reg, log) })
	return g.Wait()
}

// serve answers until ctx is done.
func (l *ledgerFlags) serve(ctx context.Context, of *ledger.Ledger, reg *prometheus.Registry, log *slog.Logger) error {
	lis, err := listen(l.listen)
	if err != nil {
		return err
	}
	log.Info("the ledger answers", "address", lis.Addr().String())
	if l.tokenFile != "" && !onThisMachine(l.listen) {
		log.Warn("the ledger's token and numbers go over HTTP as it is: put a proxy with TLS in front where the network is not your own")
	}
	server := newOps(reg, func() report { return ledgerReport(of.Status(), time.Now()) })
	mux := http.NewServeMux()
	mux.Handle("/", (&ledger.Server{Ledger: of, TokenFile: l.tokenFile}).Handler())
	for _, path := range []string{"GET /metrics", "GET /healthz", "GET /readyz"} {
		mux.Handle(path, server.Handler)
	}
	server.Handler = mux
	ended := make(chan struct{})
	goOn := context.AfterFunc(ctx, func() {
		defer close(ended)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
	})
	err = server.Serve(lis)
	if !goOn() {
		<-ended // the database is closed next
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ledgerPatience is how long reading and writing may stand still before /readyz says no.
const ledgerPatience = time.Minute

// ledgerReport answers a ledger's /readyz: 200 while it reads and writes.
func ledgerReport(s ledger.Status, now time.Time) (r report) {
	fresh := func(at time.Time) bool { return now.Sub(at) < ledgerPatience }
	if s.Err != "" {
		r.say(fresh(s.Committed), "database: %s", s.Err)
	} else {
		r.say(fresh(s.Committed), "database: written to %s", ago(s.Committed, now))
	}
	if s.Feed.Err != "" {
		r.say(fresh(s.Feed.Looked), "records: %s", s.Feed.Err)
	} else {
		r.say(fresh(s.Feed.Looked), "records: looked for %s", ago(s.Feed.Looked, now))
	}
	if s.Feed.Pending > 0 {
		r.note("records: %d still to read", s.Feed.Pending)
	}
	if s.Feed.Skipped > 0 {
		r.note("records: %d were removed before they were read", s.Feed.Skipped)
	}
	return r
}

func ago(at, now time.Time) string {
	if at.IsZero() {
		return "not yet"
	}
	return fmt.Sprintf("%v ago", now.Sub(at).Round(time.Second))
}
