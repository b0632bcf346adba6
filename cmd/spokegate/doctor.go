package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spokegate/spokegate/doctor"
)

// doctorFlags say what to look at.
type doctorFlags struct {
	target  doctor.Target
	dirs    urls
	ops     urls
	admin   urls
	engines urls
	kafka   kafkaFlags
	keyFile string
	json    bool
}

func (d *doctorFlags) register(f *flag.FlagSet) {
	f.Var(&d.dirs, "dir", "`folder` of a role on this machine, or of spokegate up, by which its processes are found; may be said again (default $SPOKEGATE_DIR, else .spokegate)")
	f.Var(&d.ops, "ops", "`address` of the pages of a door, picker, worker or hub, host:port or unix:PATH; may be said again")
	f.Var(&d.admin, "admin", "`address` of the admin page of an Envoy, any gateway's, host:port or unix:PATH; may be said again. That of a door on this machine is known")
	f.Var(&d.engines, "engine", "`URL` of an engine that must not answer here; may be said again. Those that workers were attached to are known")
	f.Int64Var(&d.target.BodyLimit, "body-limit", 32<<20, "largest request body in `bytes` that a gateway without a door of ours is to let through")
	f.StringVar(&d.target.Redis, "redis", os.Getenv("SPOKEGATE_REDIS"), "`URL` of the doors' Redis, where it has a password: without one the doors tell ($SPOKEGATE_REDIS)")
	d.kafka.register(f)
	f.StringVar(&d.keyFile, "key-file", "", "`file` with a key: one real request of one token goes through each door, and its usage record is looked for")
	f.StringVar(&d.target.Model, "model", "", "the `model` of that request (default: the first that the key may use)")
	f.StringVar(&d.target.Kube, "kube", "", "`namespace` in Kubernetes to look at, reading alone")
	f.StringVar(&d.target.KubeConfig, "kubeconfig", "", "`file` that says which cluster ($KUBECONFIG; in a pod its own)")
	f.DurationVar(&d.target.Patience, "patience", 10*time.Second, "how long each check may take")
	f.BoolVar(&d.json, "json", false, "print all that was looked at as JSON, also what is well")
}

// runDoctor looks at a deployment, and prints what is wrong with it.
func runDoctor(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("doctor", flag.ContinueOnError)
	var d doctorFlags
	d.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if err := d.complete(); err != nil {
		return badUsage(f, err)
	}
	report := doctor.Examine(ctx, d.target)
	if d.json {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		out.SetEscapeHTML(false)
		if err := out.Encode(report); err != nil {
			return err
		}
	} else if err := report.Print(os.Stdout); err != nil {
		return err
	}
	if n := report.Status(); n != 0 {
		return exitStatus{n, nil} // the report has said why
	}
	return nil
}

// complete refuses what does not fit. Where processes are named one by one, the folder here is not looked at unless it is, too.
func (d *doctorFlags) complete() error {
	d.target.Ops, d.target.Admin, d.target.Engines, d.target.Version = d.ops, d.admin, d.engines, buildVersion()
	d.target.Dirs = d.dirs
	if len(d.dirs)+len(d.ops)+len(d.admin) == 0 && d.target.Kube == "" {
		d.target.Dirs = []string{cmp.Or(os.Getenv("SPOKEGATE_DIR"), ".spokegate")}
	}
	if d.target.Patience <= 0 {
		return fmt.Errorf("-patience %v: want more than nothing", d.target.Patience)
	}
	if err := d.kafka.complete(); err != nil {
		return err
	}
	if d.kafka.brokers != "" {
		d.target.Kafka, d.target.Security = strings.Split(d.kafka.brokers, ","), d.kafka.security
	}
	if d.keyFile != "" {
		key, err := os.ReadFile(d.keyFile)
		if err != nil {
			return fmt.Errorf("-key-file: %w", err)
		}
		d.target.Key = strings.TrimSpace(string(key))
	}
	return nil
}
