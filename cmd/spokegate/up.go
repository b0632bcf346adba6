package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spokegate/spokegate/envoy"
)

// upFlags are those of the door, and what else `up` starts.
type upFlags struct {
	door      doorFlags
	workers   int
	attach    urls
	rates     string
	envoy     string // binary
	hubListen string
	drain     time.Duration
}

func (u *upFlags) register(f *flag.FlagSet) {
	u.door.register(f)
	f.IntVar(&u.workers, "workers", 3, "`number` of simulated workers; at least one an endpoint")
	f.Var(&u.attach, "attach", "`URL` of an OpenAI-compatible engine that runs already: a worker before it, instead of simulated engines; may be said again for further engines with the same models")
	f.StringVar(&u.hubListen, "hub-listen", "127.0.0.1:9700", "`address` of the hub's admin API; there is a hub where there is no -policy")
	f.StringVar(&u.rates, "rates", "", "rate `file` of the simulated engines")
	envoyThreadsFlag(f, &u.door.envoy)
	f.StringVar(&u.envoy, "envoy", "", "Envoy's `binary` (default: .tools/envoy/envoy, then PATH)")
	f.DurationVar(&u.drain, "drain", 5*time.Second, "how long running requests may go on after Ctrl-C")
}

// urls is a flag that may be said several times.
type urls []string

func (u *urls) String() string { return strings.Join(*u, ",") }

func (u *urls) Set(s string) error {
	*u = append(*u, s)
	return nil
}

// runUp starts everything on this machine, keeps it running, and stops it in order.
func runUp(ctx context.Context, args []string) error {
	var u upFlags
	f := flag.NewFlagSet("up", flag.ContinueOnError)
	u.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	site, err := prepare(ctx, &u)
	if err != nil {
		return err
	}
	defer site.close()
	if err := shareCores(); err != nil {
		return err
	}

	var g group
	defer func() {
		say("stopping")
		g.stop()
		say("stopped")
	}()
	var started []*child
	if site.hub != nil {
		started = append(started, site.child("hub", site.hub.args(site.policy, u.door.spoke, u.door.logLevel.String())...))
	}
	door := site.child("door", site.doorArgs(f)...)
	g.start(append(started, door)...)
	proxy := site.command("envoy", envoy.Command(site.envoy, u.door.envoy, site.bootstrap))
	g.start(proxy)
	workers := site.workers(u)
	g.start(workers...)
	what := "the door"
	if site.hub != nil {
		what = "the hub, the door"
	}
	say("starting %s, Envoy and %s", what, plural(len(workers), "worker"))
	for _, c := range append(append(started, door, proxy), workers...) {
		say("  %-10s log %s", c.name, c.log)
	}
	if !awaitReady(ctx, u.door.ops, u.door.url()) {
		return nil // asked to stop before it was ready
	}
	if err := site.writeEnv(u.door.url()); err != nil {
		return err
	}
	site.welcome(u)
	<-ctx.Done()
	return nil
}

// shareCores lets each of our processes run on half of the cores at a time, unless the environment says on how many: they are
// several, with Envoy and engines beside them. Where there are two cores, a thread that looks for work takes one from who has some:
// a long prompt costs door and shim a sixth less on one core each.
func shareCores() error {
	const name = "GOMAXPROCS"
	if os.Getenv(name) != "" {
		return nil
	}
	return os.Setenv(name, strconv.Itoa(max(1, runtime.GOMAXPROCS(0)/2)))
}

func say(format string, args ...any) {
	fmt.Printf("spokegate: "+format+"\n", args...)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// doorArgs repeats to the door's process what the user said of it, and puts in what `up` has found or made.
func (s *site) doorArgs(given *flag.FlagSet) []string {
	known := flag.NewFlagSet("door", flag.ContinueOnError)
	new(doorFlags).register(known)
	args := []string{"door"}
	given.Visit(func(f *flag.Flag) {
		if known.Lookup(f.Name) != nil {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	args = append(args, "-dir="+s.dir, "-join-token-file="+s.joinToken) // the last word counts
	if s.hub != nil {
		return append(args, s.hub.doorArgs()...)
	}
	return append(args, "-policy="+s.policy)
}

// workers are the shims: for each endpoint one before each attached engine, or one for each simulated engine.
func (s *site) workers(u upFlags) []*child {
	n := max(u.workers, len(s.endpoints)) // an endpoint without a worker would never be ready
	if len(u.attach) > 0 {
		n = len(s.endpoints) * len(u.attach)
	}
	var out []*child
	for i := range n {
		endpoint := s.endpoints[i%len(s.endpoints)]
		name := fmt.Sprintf("worker-%d", i+1)
		args := []string{"worker", "-name", name, "-spoke", u.door.spoke, "-endpoint", endpoint, "-dir", s.dir,
			"-doors", u.door.fleetFlags.listen, "-join-token-file", s.joinToken, "-drain-delay", "0s", "-drain", u.drain.String(),
			"-body-limit", strconv.FormatInt(u.door.envoy.BodyLimit, 10), "-ops", "127.0.0.1:0",
			"-otlp", u.door.envoy.Collector, "-log-level", u.door.logLevel.String()}
		args = append(args, u.door.kafka.args()...)
		if len(u.attach) > 0 {
			args = append(args, "-attach", u.attach[i/len(s.endpoints)])
		} else if u.rates != "" {
			args = append(args, "-rates", u.rates)
		}
		out = append(out, s.child(name, args...))
	}
	return out
}

// child is one of our own roles.
func (s *site) child(name string, args ...string) *child {
	return s.command(name, append([]string{s.self}, args...))
}

func (s *site) command(name string, argv []string) *child {
	return &child{name: name, argv: argv, log: filepath.Join(s.dir, "log", name+".log"), say: say}
}

// welcome says what a user can do now.
func (s *site) welcome(u upFlags) {
	model := s.models[0]
	fmt.Printf(`
The door is open at %s

  . %s
  curl -N "$SPOKEGATE_URL/v1/chat/completions" -H "Authorization: Bearer $SPOKEGATE_KEY" \
    -H 'Content-Type: application/json' \
    -d '{"model":"%s","stream":true,"messages":[{"role":"user","content":"Hello"}]}'

usage records:  %s usage tail -dir %s
policy:         %s
health:         http://%s/readyz   metrics: /metrics   Envoy: http://%s
Ctrl-C stops everything.
`, u.door.url(), shellQuote(s.envFile), model, shellQuote(s.self), shellQuote(s.dir), s.whereToChange(), u.door.ops, u.door.envoy.Admin)
	if s.key == "" {
		fmt.Printf("\nThis policy holds only hashes of keys: set SPOKEGATE_KEY to one of yours, or make one with `%s key new`.\n", filepath.Base(os.Args[0]))
	}
}
