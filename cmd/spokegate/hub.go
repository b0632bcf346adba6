package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/spokegate/spokegate/hub"
	"github.com/spokegate/spokegate/hub/api"
	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/xds/push"
)

// hubRoleFlags are a hub's whole configuration.
type hubRoleFlags struct {
	dir, database, templates string
	listen                   string
	tlsCert, tlsKey          string
	plain                    bool
	pushListen               string
	tls                      mtls.Files
	pushToken                string
	ops                      string
	importFile, importSpoke  string
	admin                    string
	above                    uint64
	level                    slog.Level
	said                     said // all of it, as the page /about tells it
}

var defaultHubDir = filepath.Join(".spokegate", "hub")

func (h *hubRoleFlags) register(f *flag.FlagSet) {
	f.StringVar(&h.dir, "dir", defaultHubDir, "`folder` for the database, the first admin token and the doors' token")
	f.StringVar(&h.database, "db", os.Getenv("SPOKEGATE_HUB_DB"), "the database: a `file` of SQLite, which is made where it is missing, or postgres://USER@HOST/NAME (default: DIR/hub.db; $SPOKEGATE_HUB_DB)")
	f.StringVar(&h.templates, "templates", "", "`folder` with templates STACK.yaml.tmpl of deployments, which go before the built-in ones")
	f.StringVar(&h.listen, "listen", "127.0.0.1:9700", "`address` of the admin API")
	f.StringVar(&h.tlsCert, "tls-cert", "", "`file` with the PEM certificate chain of the admin API; needed where -listen is not this machine alone. A renewed one is taken up")
	f.StringVar(&h.tlsKey, "tls-key", "", "`file` with its key")
	f.BoolVar(&h.plain, "plain", false, "let -listen be open to the network without TLS: only where the network itself encrypts")
	f.StringVar(&h.pushListen, "push-listen", "127.0.0.1:9701", "`address` where doors follow the policy: host:port, or unix:PATH")
	f.StringVar(&h.tls.Cert, "cert", "", "`file` with the PEM certificate chain that doors know the hub by; needed where -push-listen is not this machine alone. A renewed one is taken up")
	f.StringVar(&h.tls.Key, "key", "", "`file` with its key")
	f.StringVar(&h.tls.CA, "ca", "", "`file` with the PEM certificates of the authorities that vouch for doors")
	f.StringVar(&h.pushToken, "push-token-file", "", "`file` with the token that doors of this machine show, where there are no certificates; made where it is missing (default: DIR/push.token)")
	f.StringVar(&h.ops, "ops", "127.0.0.1:9702", "`address` of /metrics, /healthz and /readyz")
	f.StringVar(&h.importFile, "import", "", "policy `file` for the first revision; where there is one already it is not looked at")
	f.StringVar(&h.importSpoke, "import-spoke", "local", "the `spoke` that the endpoints of -import run in")
	f.StringVar(&h.admin, "new-admin", "", "make one more admin token with this `name`, and write it into DIR/NAME.token: for who has lost theirs")
	f.Uint64Var(&h.above, "continue-above", 0, "give revisions numbers above this `one`, where they are not already: after the database was restored from an old copy, and doors hold later revisions")
	levelFlag(f, &h.level)
}

// check derives what is left open, and refuses what does not fit.
func (h *hubRoleFlags) check() (err error) {
	if h.dir, err = filepath.Abs(h.dir); err != nil {
		return err
	}
	h.database = cmp.Or(h.database, filepath.Join(h.dir, "hub.db"))
	h.pushToken = cmp.Or(h.pushToken, filepath.Join(h.dir, "push.token"))
	switch {
	case (h.tlsCert == "") != (h.tlsKey == ""):
		return errors.New("-tls-cert and -tls-key go together")
	case h.tlsCert == "" && !h.plain && !onThisMachine(h.listen):
		return fmt.Errorf("-listen %s is reached from other machines, and admin tokens would cross the network unencrypted: give -tls-cert and -tls-key, "+
			"or -plain where the network itself encrypts", h.listen)
	case !h.tls.Given() && !onThisMachine(h.pushListen):
		return fmt.Errorf("-push-listen %s is reached from other machines: doors know the hub by -cert, -key and -ca", h.pushListen)
	case h.admin != "" && filepath.Base(h.admin) != h.admin:
		return fmt.Errorf("-new-admin %q: want a plain name", h.admin)
	}
	return nil
}

// runHub serves the control plane.
func runHub(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("hub", flag.ContinueOnError)
	var flags hubRoleFlags
	flags.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if err := flags.check(); err != nil {
		return badUsage(f, err)
	}
	flags.said = sayFlags(f)
	if err := os.MkdirAll(flags.dir, 0o700); err != nil {
		return err
	}
	log := newLog(os.Stderr, flags.level, "hub", "main")
	reg := newRegistry()
	h, err := hub.Open(ctx, hub.Config{Database: flags.database, Templates: flags.templates, Log: log, Reg: reg})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if err := flags.prepare(ctx, h, log); err != nil {
		return err
	}
	p, err := flags.push(h, reg, log)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.Run(ctx) })
	g.Go(func() error { return intake(ctx, h, p, log) })
	g.Go(func() error { return flags.serve(ctx, h, p, reg, log) })
	return g.Wait()
}

// push makes the doors' side.
func (h *hubRoleFlags) push(cuts push.Cuts, reg prometheus.Registerer, log *slog.Logger) (*push.Server, error) {
	cfg := push.Config{Cuts: cuts, Log: log, Registerer: reg}
	if h.tls.Given() {
		keeper, err := openCertificates(h.tls, "doors", reg, log)
		if err != nil {
			return nil, err
		}
		cfg.Certificates = keeper
		return push.NewServer(cfg)
	}
	var err error
	if cfg.Token, err = madeToken(h.pushToken); err != nil {
		return nil, err
	}
	return push.NewServer(cfg)
}

// serve answers operators and doors until ctx is done.
func (h *hubRoleFlags) serve(ctx context.Context, of *hub.Hub, p *push.Server, reg *prometheus.Registry, log *slog.Logger) error {
	server := api.New(api.Config{Hub: of, Replicas: func() []api.Replica { return replicas(p.Holders()) }, Used: usedOf(p), Log: log, Registerer: reg, Now: time.Now})
	operators := &http.Server{Handler: server.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: pageAsked,
		WriteTimeout: pageRead, IdleTimeout: pageIdle, MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	serve := func(lis net.Listener) error { return operators.Serve(lis) }
	if h.tlsCert != "" {
		files := &certFile{cert: h.tlsCert, key: h.tlsKey, log: log}
		if _, err := files.get(nil); err != nil {
			return err
		}
		tellExpiry("operators", reg, files.expires)
		operators.TLSConfig = files.config()
		serve = func(lis net.Listener) error { return operators.ServeTLS(lis, "", "") }
	} else if !onThisMachine(h.listen) {
		log.Warn("admin tokens cross the network unencrypted", "address", h.listen)
	}
	g := grpc.NewServer(p.Options()...)
	p.Register(g)
	ops := newOps(reg, func() report { return hubReport(ctx, of, p) }, aboutPage("hub", "main", "", h.said, nil))
	var s servers
	s.http(h.listen, operators, serve, func(at string) {
		log.Info("the hub answers", "address", at, "database", of.Where(), "revision", of.Head().Number)
	})
	s.grpc(h.pushListen, g)
	s.http(h.ops, ops, ops.Serve, func(at string) {
		if err := writeAddress(filepath.Join(h.dir, "run", opsFile), at); err != nil { // commands can still be told it
			log.Warn("where the pages are is not written down", "error", err)
		}
	})
	return s.run(ctx)
}

// lastCalls is how long requests that run may go on when the hub stops.
const lastCalls = 10 * time.Second

// http adds an HTTP server; begun is told where it listens.
func (s *servers) http(address string, server *http.Server, serve func(net.Listener) error, begun func(address string)) {
	s.list = append(s.list, listener{address, func(lis net.Listener) error {
		begun(lis.Addr().String())
		if err := serve(lis); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, func() {
		last, cancel := context.WithTimeout(context.Background(), lastCalls)
		defer cancel()
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
	}})
}

// hubReport answers a hub's /readyz: 200 while its database answers, and can be followed.
func hubReport(ctx context.Context, h *hub.Hub, p *push.Server) (r report) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := h.Revisions(ctx, hub.Actor{Name: "readyz", Role: hub.RoleAuditor}, 0, 1); err != nil {
		r.say(false, "database: %v", err)
	} else if err := h.Behind(); err != nil {
		r.say(false, "database: what is new in it cannot be taken up, revision %d goes on: %v", h.Head().Number, err)
	} else {
		r.say(true, "database: answers; revision %d", h.Head().Number)
	}
	for _, d := range p.Holders() {
		switch {
		case d.Ahead():
			r.note("door %s/%s: %s", d.Spoke, d.Door, ahead(&d))
		case !d.Connected:
			r.note("door %s/%s: away for %v", d.Spoke, d.Door, time.Since(d.Since).Round(time.Second))
		case d.Nack != "":
			r.note("door %s/%s refuses revision %d: %s", d.Spoke, d.Door, d.NackRevision, d.Nack)
		}
	}
	return r
}
